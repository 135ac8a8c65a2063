"""Which two hubs a leaf takes of those that accept it, and when it takes others."""

from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.leaves.nearest_hubs import (
    HUBS_TAKEN,
    NearestHubs,
    SeenHub,
    best_of,
    kept_of,
)
from federator.protocol.types import BrokerId, Millis
from tests.transcripts import play, scenes

LEAF = BrokerId(417)
PATIENCE_MS, KEEP_MS, EXCHANGE_MS = 60_000, 1_800_000, 180_000


def taking(*taken, known=(1, 2, 3)):
    return NearestHubs(
        known,
        LEAF,
        taken=taken,
        patience_ms=PATIENCE_MS,
        keep_ms=KEEP_MS,
        exchange_ms=EXCHANGE_MS,
        now_ms=Millis(0),
    )


def seen(words):
    """Hubs that answer, as ``ID,MILLISECONDS,LEAVES``."""
    fields = (word.split(",") for word in words)
    return [SeenHub(BrokerId(int(id)), float(ms), int(leaves)) for id, ms, leaves in fields]


class Stage:
    """A leaf that knows hubs 1, 2 and 3; a command begins with the time in ms.

    ``leaf`` starts another one: ``known=1,2``, and what it took before. ``look 1 2`` asks whether
    to measure all hubs while the links to these are up. ``seen`` handles the answers: ``up=1,2``,
    ``by=`` the hub that serves. Prints the hubs that are taken, when they changed.
    """

    def __init__(self):
        self.hubs = taking()

    def do(self, now_ms, command, *words):
        before = self.hubs.taken
        yield from getattr(self, f"_{command}")(Millis(int(now_ms)), *words) or ()
        if self.hubs.taken != before:
            yield f"takes {self.hubs.taken}"

    def _best(self, now_ms, count, *words):
        yield str([hub.id for hub in best_of(seen(words), LEAF, int(count))])

    def _leaf(self, now_ms, known, *taken):
        self.hubs = taking(*map(int, taken), known=tuple(map(int, known.split(","))))

    def _start(self, now_ms, *words):
        self.hubs.start(seen(words), now_ms)

    def _know(self, now_ms, *hubs):
        known = tuple(map(int, hubs))
        self.hubs.know(known, kept_of(self.hubs.taken, known), now_ms)

    def _look(self, now_ms, *up):
        yield "looks" if self.hubs.is_due({*map(int, up)}, now_ms) else "waits"

    def _seen(self, now_ms, up, by, *words):
        up = {int(hub) for hub in up.removeprefix("up=").split(",") if hub}
        serving = int(by.removeprefix("by=") or 0) or None
        yield "changes" if self.hubs.on_seen(seen(words), up, serving, now_ms) else "stays"


@scenes(Path(__file__).with_name("nearest_hubs.txt"))
def test_transcript(path, number):
    play(path, number, Stage())


def test_leaves_that_start_together_spread_over_equal_hubs():
    equal = seen(["1,10,0", "2,10,0", "3,10,0"])

    first = Counter(best_of(equal, BrokerId(leaf))[0].id for leaf in range(300))

    assert min(first.values()) > 60


HUBS = [BrokerId(id) for id in range(1, 7)]
SEEN = st.lists(
    st.builds(SeenHub, st.sampled_from(HUBS), st.floats(0.1, 100), st.integers(0, 50)),
    unique_by=lambda each: each.id,
)


@given(
    st.lists(st.sampled_from(HUBS), min_size=1, unique=True),
    st.lists(st.tuples(SEEN, st.sets(st.sampled_from(HUBS)), st.integers(0, 700_000))),
)
def test_whatever_it_sees_it_has_two_of_those_it_knows_and_keeps_the_one_that_serves(known, steps):
    hubs, now_ms = taking(known=known), 0
    for answers, up, wait_ms in steps:
        now_ms += wait_ms
        linked = up & {*hubs.taken}
        serving = next((hub for hub in hubs.taken if hub in linked), None)
        hubs.is_due(linked, Millis(now_ms))
        told = [each for each in answers if each.id in known]

        hubs.on_seen(told, linked, serving, Millis(now_ms))

        assert len(set(hubs.taken)) == len(hubs.taken) == min(HUBS_TAKEN, len(known))
        assert {*hubs.taken} <= {*known}
        assert serving is None or serving in hubs.taken
