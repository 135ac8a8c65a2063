"""One comparison, step by step. docs/protocol.md 13."""

from pathlib import Path

from federator.protocol.messages.control import (
    RETAINED_ENTRIES_MAX,
    RetainedEntry,
    RetainedNews,
    RetainedPull,
    RetainedValues,
)
from federator.protocol.retained.long_values import PART_BYTES
from federator.protocol.retained.round import Round, answer_pull, make_offer
from federator.protocol.retained.store import RetainedStore
from federator.protocol.retained.versions import Version
from tests.protocol.retained.peers import Peer, buckets_of, entries
from tests.transcripts import play, scenes

NOW_US = 10_000
LONG = bytes(range(256)) * 1_000


def test_a_late_joiner_gets_the_newest_of_all_values_and_only_that_and_tells_who_is_behind():
    first, second, joiner = Peer(1), Peer(2), Peer(3)
    first.set("a", b"old", 100)
    second.set("a", b"new", 200)

    joiner.compare([first, second], NOW_US)

    assert joiner.deliveries == [("a", b"new")]
    assert first.deliveries == [("a", b"new")]


def test_a_peer_that_holds_what_was_deleted_is_told():
    first, second = Peer(1), Peer(2)
    first.set("a", b"old", 100)
    second.set("a", b"", 200)

    second.compare([first], NOW_US)

    assert first.broker == {}
    assert first.store.get("a").deleted


def test_the_same_value_under_an_older_version_is_adopted_and_not_published_again():
    first, second = Peer(1), Peer(2)
    version = first.set("a", b"same", 100)
    second.set_unseen("a", b"same")

    second.compare([first], NOW_US)

    assert second.deliveries == []
    assert second.store.get("a").version == version


class Stage:
    """A comparison of broker 9 with peers, 1 to 8; prints letters that are posted, and decisions.

    ``has 1 t/# 512`` fills a peer's table with values below a filter; ``has 9 a 5`` sets one at
    version 5, ``--elsewhere`` without our broker having it. ``offer 1 t/#`` prints the first page
    that is asked for, ``read`` reads all pages. ``ask`` and ``asks`` print what is asked for: how
    many topics, or which if they are few.
    """

    def __init__(self):
        self.stores = {id: RetainedStore(id, tombstone_keep_us=10**9) for id in range(1, 10)}
        self.wanted = None
        self.found = {}
        self.way, self.question = (), None
        self._round()

    def do(self, command, *words):
        return getattr(self, f"_{command}")(*words) or ()

    def _round(self):
        """Another comparison begins."""
        self.round = Round(
            self.stores[9],
            wanted=lambda topic: self.wanted is None or topic in self.wanted,
            found=self.found.get,
            own={"t/#": buckets_of(self.stores[9], "t/#")} if len(self.stores[9]) else {},
        )

    def _has(self, id, topic, number, *how):
        count = int(number) if topic.endswith("/#") else 1
        for place in range(count):
            name = topic.replace("#", str(place))
            version = Version(5 if topic.endswith("/#") else int(number), 0, 1)
            here = "--elsewhere" not in how
            self.stores[int(id)].put(name, version, 7, deleted=False, here=here, now_us=5)

    def _forgets(self, id):
        self.stores[int(id)] = RetainedStore(int(id), tombstone_keep_us=10**9)

    def _same(self, id):
        """We have all that the peer has."""
        self.stores[9].load(self.stores[int(id)].save()())
        self._round()

    def _broker_has(self, id, *but):
        """Our broker has the peer's values, but others on some topics; our table has no place."""
        values = {topic: entry.digest for topic, entry in entries(self.stores[int(id)])}
        self.found = values | dict.fromkeys(but, 8)
        self.stores[9] = RetainedStore(9, topics_max=1, tombstone_keep_us=10**9)
        self._round()

    def _wants(self, *topics):
        self.wanted = set(topics)

    def _refuse(self, topic, digest):
        """Our broker does."""
        self.stores[9].refuse(topic, int(digest))

    def _restarted(self):
        self.stores[9].broker_restarted()

    def _offer(self, id, filter):
        store = self.stores[int(id)]
        self.post = self.round.on_offer((9, int(id)), make_offer(filter, buckets_of(store, filter)))
        return self._posted()

    def _posted(self):
        for way, pull in self.post:
            which = pull.mask.bit_length() - 1 if pull.mask.bit_count() == 1 else "some"
            yield f"pull {pull.filter} of {way[-1]}, bucket {which}"

    def _page(self, id, after=None):
        """A peer answers the pull that was posted; ``after``: another page than we asked for."""
        ((way, pull),) = self.post
        if after is not None:
            pull = RetainedPull(pull.filter, pull.mask, after)
        self.post = self.round.on_page(way, answer_pull(self.stores[int(id)], pull))
        return self._posted()

    def _read(self, id, filter):
        pages = 0
        for _ in self._offer(id, filter):
            while self.post:
                pages += 1
                list(self._page(id))
        yield f"{pages} pages"

    def _set_aside(self, filter):
        self.post = self.round.set_aside(filter)
        return self._posted()

    def _news(self, id, time_us, topic="a", filter="#"):
        entry = RetainedEntry(topic, int(time_us), 0, int(id), 7, deleted=False)
        self.round.on_news((9, int(id)), RetainedNews(filter, (entry,)))

    def _few_first(self):
        self.round.few_first()

    def _give_up_reading(self):
        yield f"{self.round.give_up_reading()} unread"

    def _decide(self, *how):
        self.round.decide(NOW_US)
        while "--all" in how and self.round.undecided:
            self.round.decide(NOW_US)
        if self.round.undecided:
            yield "more to decide"

    def _ask(self):
        asked = self.round.next_ask()
        if asked is None:
            yield "nothing"
            return
        self.way, self.question = asked
        topics = self.question.topics
        many = topics[0] if len(topics) == 1 else f"{len(topics)} from {topics[0]}"
        yield f"{many} of {self.way[-1]}" + f" at {self.question.at}" * bool(self.question.at)

    def _asks(self, *answer):
        """All, one after the other; ``--empty``: each is answered with nothing."""
        line = None
        while line != "nothing":
            (line,) = self._ask()
            if answer:
                self.round.on_values(self.way, RetainedValues("t/#", (), ()))
            yield line

    def _values(self, id, *topics):
        made = [RetainedEntry(topic, 5, 0, 1, 7, deleted=False) for topic in topics]
        values = RetainedValues("t/#", tuple(made), tuple(b"packet" for _ in topics))
        return self._taken(self.round.on_values((9, int(id)), values))

    def _part(self, topic):
        """The part that was asked for, of a long value on this topic."""
        at = self.question.at
        entry, part = RetainedEntry(topic, 5, 0, 1, 7, deleted=False), LONG[at : at + PART_BYTES]
        values = RetainedValues("t/#", (entry,), (part,), at, len(LONG))
        return self._taken(self.round.on_values(self.way, values))

    def _taken(self, taken):
        yield "asked for by nobody" if taken is None else f"{len(taken)} taken"
        yield from (f"{entry.topic} whole" for entry, packet in taken or () if packet == LONG)

    def _told(self):
        """What peers are told that are behind."""
        for way, news in self.round.news():
            yield f"{way[-1]} of {' '.join(f'{e.topic} {e.time_us}' for e in news.entries)}"

    def _known(self, topic):
        yield str(self.stores[9].get(topic).version.time_us)


@scenes(Path(__file__).parent / "round.txt")
def test_transcript(path, number):
    assert RETAINED_ENTRIES_MAX == 512, "the scenes count in pages of so many"
    play(path, number, Stage())
