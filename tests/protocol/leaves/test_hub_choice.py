"""Which hub serves a leaf: one that is up, in time the preferred one, and back far enough."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.leaves.hub_choice import FIRST_WAIT_MS, LOOK_BACK_MS, TICK_MS, HubChoice
from federator.protocol.types import BrokerId, Millis, Now
from tests.transcripts import play, scenes

FIRST, SECOND = BrokerId(1), BrokerId(2)
LATE_MS, RETURN_MS = 3_000, 60_000
START_US = 10**15


def at(ms):
    return Now(Millis(ms), START_US + ms * 1_000)


class Stage:
    """A leaf that prefers hub 1 to hub 2; a command begins with the time in ms.

    ``up`` and ``down`` are of the link to a hub. ``calls`` passes the time, once a second.
    ``leaf`` starts another leaf: ``served_by`` before its restart, with its times. ``missing`` is
    since when something is missing from a hub; 0: no longer. Prints which hub serves, ``from``
    when it is asked for the past, and whether the leaf is served, when that changed; ``due``
    prints the next deadline.
    """

    def __init__(self):
        self.missing = {}
        self._leaf(0)

    def do(self, now_ms, command, *words):
        if command == "due":
            yield str(self.choice.next_deadline_ms())
            return
        served = self.choice.is_served
        for chosen in getattr(self, f"_{command}")(int(now_ms), *words) or ():
            if chosen is not None:
                since = f", from {(chosen.since_us - START_US) // 1_000}" * (chosen.since_us > 0)
                others = ", ".join(map(str, sorted(chosen.others)))
                yield f"{chosen.hub} serves and not {others}{since}{', resumes' * chosen.resumes}"
        if self.choice.is_served != served:
            yield "not served" if served else "served"

    def _leaf(self, now_ms, **before):
        self.choice = HubChoice(
            (FIRST, SECOND),
            at(now_ms),
            look_back_ms=LATE_MS,
            return_after_ms=RETURN_MS,
            missing_since_us=lambda hub, now: self.missing.get(hub, 0),
            **before,
        )

    def _restarted(self, now_ms, hub, until_ms, since_ms=None):
        since_us = 0 if since_ms is None else at(int(since_ms)).us
        until_us = at(int(until_ms)).us
        self._leaf(now_ms, served_by=int(hub), served_until_us=until_us, served_since_us=since_us)

    def _missing(self, now_ms, hub, since_ms):
        self.missing = {int(hub): at(int(since_ms)).us if since_ms != "0" else 0}

    def _up(self, now_ms, *hubs):
        return [self.choice.on_link(int(hub), True, at(now_ms)) for hub in hubs]

    def _down(self, now_ms, hub):
        return [self.choice.on_link(int(hub), False, at(now_ms))]

    def _time(self, now_ms):
        return [self.choice.on_time(at(now_ms))]

    def _calls(self, now_ms, until_ms):
        return [self.choice.on_time(at(ms)) for ms in range(now_ms, int(until_ms), TICK_MS)]

    def _returns(self, now_ms):
        return [self.choice.return_now(at(now_ms))]

    def _prefer(self, now_ms, *hubs):
        self.choice.prefer(tuple(map(int, hubs)))


@scenes(Path(__file__).with_name("hub_choice.txt"))
def test_transcript(path, number):
    play(path, number, Stage())


@given(st.lists(st.tuples(st.sampled_from((FIRST, SECOND)), st.booleans(), st.integers(0, 90_000))))
def test_whoever_is_there_serves_and_nobody_else(steps):
    choice, up, now_ms = Stage().choice, set(), FIRST_WAIT_MS
    for hub, is_up, wait_ms in steps:
        now_ms += wait_ms
        before = choice.hub
        (up.add if is_up else up.discard)(hub)
        found = choice.on_link(hub, is_up, at(now_ms))
        assert (found is not None) == (choice.hub != before) or before is None
        if up:
            assert choice.is_served
            assert choice.hub in up
        if found is not None and found.since_us:
            assert found.since_us <= at(now_ms).us - (LATE_MS + LOOK_BACK_MS) * 1_000
