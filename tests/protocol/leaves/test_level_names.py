"""How many names a level has: counted by level, in whole powers, within bounds."""

from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.leaves import level_names
from federator.protocol.leaves.level_names import FAN_OUT, LevelNames

TEXTS = st.lists(
    st.lists(st.sampled_from("abcdefghijklmn+"), min_size=1, max_size=3).map("/".join), max_size=300
)


@given(TEXTS)
def test_a_fan_out_is_the_greatest_power_that_was_seen(texts):
    names, seen = LevelNames(), {}
    for text in texts:
        names.note(text)
        levels = text.split("/")
        for depth, name in enumerate(levels):
            if name != "+":
                seen.setdefault((levels[0] if depth else "", depth), set()).add(name)

    for level, found in seen.items():
        power = max(FAN_OUT**n for n in range(1, 5) if n == 1 or FAN_OUT**n <= len(found))
        assert names.fan_outs.by_level.get(level, FAN_OUT) == power


def test_levels_below_different_first_ones_are_counted_apart():
    names = LevelNames()

    for n in range(100):
        names.note(f"site/{n}/door")

    assert names.fan_outs.by_level == {("site", 1): 64}


def test_what_was_known_stays_as_it_was_for_who_holds_it():
    names = LevelNames()
    before = names.fan_outs
    for n in range(63):
        names.note(f"site/{n}")
    assert names.fan_outs is before

    names.note("site/63")

    assert before.by_level == {}
    assert names.fan_outs.by_level == {("site", 1): 64}


def test_who_invents_names_and_levels_takes_no_more_room_than_there_is(monkeypatch):
    monkeypatch.setattr(level_names, "NAMES_IN_ALL_MAX", 5_000)
    monkeypatch.setattr(level_names, "LEVELS_MAX", 50)
    names = LevelNames()

    for n in range(5_000):
        names.note(f"first-{n % 100}/second-{n}/third-{n}")
        names.note(f"one/{n}")

    held = names._seen.values()
    assert len(held) <= 50
    assert sum(map(len, held)) <= 5_000
    assert max(map(len, held)) <= level_names.NAMES_MAX
