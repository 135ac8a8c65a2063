"""What an agent makes of what it finds on its broker. docs/protocol.md 13."""

from pathlib import Path

from federator.protocol.retained.store import RetainedStore
from federator.protocol.retained.versions import Version
from tests.protocol.retained.peers import entries
from tests.transcripts import play, scenes

ME, OTHER = 1, 2
KEEP_US = 1_000


class Stage:
    """The store of broker 1; prints the topics whose entry changed: version, digest, marks.

    ``50.0@2`` is the version that broker 2 made at 50 us. ``known a 50 7`` is a value with the
    digest 7; ``--deleted``, ``--mine``. ``look a=7`` finds just this on our broker; ``begin`` is
    when a later look began.
    """

    def __init__(self):
        self._store()

    def do(self, command, *words):
        before = self._entries()
        yield from getattr(self, f"_{command}")(*words) or ()
        after = self._entries()
        for topic in sorted(before | after):
            if after.get(topic) != before.get(topic):
                yield f"{topic} {after.get(topic, 'none')}"

    def _store(self, *bounds):
        """``topics_max=2``; ``private=secret`` is not for others."""
        values = dict(bound.split("=") for bound in bounds)
        private = values.pop("private", "")
        numbers = {"tombstone_keep_us": KEEP_US} | {n: int(v) for n, v in values.items()}
        self.store = RetainedStore(ME, allows_export=lambda topic: topic != private, **numbers)
        self.since = None

    def _entries(self):
        return {topic: text(self.store.get(topic)) for topic, _ in entries(self.store)}

    def _known(self, topic, time_us, digest, *options):
        version = Version(int(time_us), 0, ME if "--mine" in options else OTHER)
        deleted, now_us = "--deleted" in options, int(time_us)
        self.store.put(topic, version, int(digest), deleted=deleted, now_us=now_us)

    def _admit(self, topic, time_us):
        version = Version(int(time_us), 0, OTHER)
        yield self.store.admit(topic, version, 7, deleted=False, now_us=100).name

    def _begin(self):
        self.since = self.store.touched

    def _look(self, *found):
        """``seen_us=100``: when we looked before."""
        values = {topic: int(digest) for topic, digest in (each.split("=") for each in found)}
        seen = {"seen_us": values.pop("seen_us")} if "seen_us" in values else {}
        since = self.store.touched if self.since is None else self.since
        for topic in self.store.on_found(values, since=since, now_us=200, **seen):
            yield f"erases {topic}"
        for _ in self.store.on_scanned(["#"], values.keys(), since=since, now_us=200, **seen):
            pass

    def _restarted(self):
        self.store.broker_restarted()

    def _doubt(self, topic):
        self.store.doubt(topic)

    def _doubt_others(self, since_us):
        self.store.doubt_others(since_us=int(since_us))

    def _expire(self, now_us):
        self.store.expire(int(now_us))

    def _counts(self):
        store = self.store
        yield f"{len(store)} topics, {store.tombstones} deleted, {store.places.refused} refused"


def text(entry):
    time_us, count, origin = entry.version
    marks = " deleted" * entry.deleted + " elsewhere" * (not entry.here)
    return f"{time_us}.{count}@{origin} digest {entry.digest}{marks}"


@scenes(Path(__file__).parent / "store.txt")
def test_transcript(path, number):
    play(path, number, Stage())
