"""Which topics have an entry when there are too many. docs/protocol.md 13."""

from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.retained.places import ACCOUNTS_MAX, Places, SortedNames
from federator.protocol.retained.store import RetainedStore
from federator.protocol.retained.versions import Version
from tests.protocol.retained.peers import entries
from tests.transcripts import play, scenes

ME, FLOODED, QUIET = 1, 2, 3
ROOM = 80


class Stage:
    """A table of 80 places, a quarter of them for guests, at broker 1.

    ``put 2 flood 800`` sets ``flood/0`` and so on at broker 2; ``delete`` all of them, and
    ``find`` one topic on our broker. ``lasting`` prints how many of a name have a lasting place,
    ``told`` what is to be saved: topics, in brackets when they have none.
    """

    def __init__(self):
        self.store = RetainedStore(ME, topics_max=ROOM, tombstone_keep_us=1_000)

    def do(self, command, *words):
        return getattr(self, f"_{command}")(*words) or ()

    def _put(self, origin, name, count, *, time_us=50, deleted=False):
        for number in range(int(count)):
            version = Version(time_us, number * (not deleted), int(origin))
            topic = f"{name}/{number}"
            self.store.put(topic, version, 7, deleted=deleted, now_us=time_us)

    def _delete(self, origin, name, count):
        self._put(origin, name, count, time_us=60, deleted=True)

    def _find(self, topic):
        self.store.on_found({topic: 7}, since=self.store.touched, now_us=60)

    def _expire(self, now_us):
        self.store.expire(int(now_us))

    def _lasting(self, name):
        here = [topic for topic, _ in entries(self.store, f"{name}/#")]
        guests = sum(map(self.store.places.is_guest, here))
        yield f"{len(here) - guests} of {name}" + f", {guests} guests" * bool(guests)

    def _all(self):
        yield f"{len(self.store)} topics"

    def _save(self):
        self.store.take_changes(1_000)

    def _told(self):
        saved = self.store.take_changes(1_000)
        yield " ".join(f"({each})" if isinstance(each, str) else each.topic for each in saved)

    def _saved(self):
        saved = Counter(each.topic.partition("/")[0] for each in self.store.save()())
        yield ", ".join(f"{count} of {name}" for name, count in sorted(saved.items()))

    def _culprit(self):
        places = self.store.places
        yield "{1} of broker {0}, most in {2}".format(*places.culprit())
        yield "crowded" if places.crowded else "room"


@scenes(Path(__file__).parent / "places.txt")
def test_transcript(path, number):
    play(path, number, Stage())


def test_origins_that_somebody_invents_share_one_account():
    places = Places(ME, topics_max=8_000)
    for origin in range(2, 10_000):
        places.take(f"invented/{origin}", origin)

    ours = [f"ours/{number}" for number in range(3_000)]
    for topic in ours:
        places.take(topic, ME)

    assert not any(map(places.is_guest, ours))
    assert len(places._accounts) <= ACCOUNTS_MAX + 2


ORIGINS = (ME, FLOODED, QUIET)
MOVES = st.lists(
    st.tuples(st.integers(0, 40).map(str), st.sampled_from(ORIGINS), st.booleans()), max_size=300
)


@given(MOVES)
def test_there_are_never_more_than_there_is_room_for_and_shares_are_fair(moves):
    store = RetainedStore(ME, topics_max=16, tombstone_keep_us=1_000)
    for topic, origin, forget in moves:
        if forget and store.get(topic) is not None:
            store._forget(topic)
        else:
            store.put(topic, Version(1, 1, origin), 7, deleted=False, now_us=1)

        places = store.places
        kept = [t for t in store._entries if not places.is_guest(t)]
        assert len(store) <= 16
        assert len(kept) <= 12
        assert sorted([*kept, *places._guests]) == sorted(store._entries)
        held = Counter(places._lasting.values())
        assert held == Counter(store.get(t).version.origin for t in kept)
        claims = {origin: held[origin] - (6 if origin == ME else 0) for origin in held}
        assert places._largest in {ME, *held}
        assert claims.get(places._largest, -6) == max([-6, *claims.values()])


@given(st.lists(st.tuples(st.text("ab/", max_size=3), st.booleans())), st.text("ab", max_size=1))
def test_names_are_told_in_order_whatever_came_and_went(moves, start):
    names, true = SortedNames(), set()
    for name, ask in moves:
        (names.discard if name in true else names.add)(name)
        true ^= {name}
        if ask:
            told = list(names.beginning(start, after="a"))
            assert told == sorted(n for n in true if n.startswith(start) and n > "a")
