"""What waits at a hub: each side in its turn, what was taken back forgotten, nothing else lost."""

from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.leaves.waiting import WaitingChanges

SIDES, FILTERS = st.sampled_from("xyz"), st.sampled_from("abcdefgh")
STEPS = st.lists(st.one_of(st.none(), st.tuples(SIDES, st.booleans(), FILTERS)), max_size=80)


@given(STEPS)
def test_who_takes_all_knows_what_each_side_wants(steps):
    waiting = WaitingChanges(2)
    wants, known = {s: set() for s in "xyz"}, {s: set() for s in "xyz"}

    def take():
        side, change = waiting.take()
        assert 1 <= len(change.subscribe) + len(change.unsubscribe) <= 2
        assert not known[side] & set(change.subscribe)
        assert known[side] >= set(change.unsubscribe)
        known[side] |= set(change.subscribe)
        known[side] -= set(change.unsubscribe)

    for step in steps:
        if step is None:
            if waiting:
                take()
            continue
        side, adds, filter_ = step
        if adds == (filter_ in wants[side]):
            continue
        (wants[side].add if adds else wants[side].discard)(filter_)
        waiting.add(side, *(([filter_], []) if adds else ([], [filter_])))
        queued = sum(len(each) for each in waiting._wanted.values())
        assert queued == sum(len(wants[s] ^ known[s]) for s in "xyz"), "what was taken back is gone"

    while waiting:
        take()
    assert known == wants


def test_a_side_with_much_to_say_does_not_keep_others_waiting():
    waiting = WaitingChanges(10)
    waiting.add("loud", [f"a/{n}" for n in range(1_000)], [])
    waiting.add("quiet", ["b"], [])

    assert waiting.take()[0] == "loud"
    assert waiting.take()[0] == "quiet"


def test_what_replaces_something_is_one_change():
    waiting = WaitingChanges()

    waiting.add("x", ["a", "b"], ["b", "c"])

    side, change = waiting.take()
    assert (side, change.subscribe, change.unsubscribe) == ("x", ("a",), ("c",))
    assert not waiting
