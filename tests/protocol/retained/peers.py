"""Brokers and agents in one piece, to see whether their retained values come to agree."""

from federator.protocol.messages.control import (
    RetainedAsk,
    RetainedNews,
    RetainedPull,
    RetainedValues,
)
from federator.protocol.retained.packets import payload_digest
from federator.protocol.retained.round import (
    Round,
    answer_pull,
    as_entry,
    make_offer,
    version_of,
)
from federator.protocol.retained.store import RetainedStore, Verdict
from federator.protocol.retained.versions import HybridClock, Version

KEEP_US = 10**9


def buckets_of(store, filter="#"):
    """The digests of what ``store`` knows below ``filter``."""
    *_, digests = store.digests([filter])
    return digests[filter]


def entries(store, filter="#", after=""):
    """What ``store`` knows below ``filter``, in order."""
    return store.page(filter, mask=-1, after=after, count=10**9, chars=10**9)[0]


class Peer:
    """One broker with its agent.

    Attributes:
        broker: What the broker retains: payloads by topic.
        deliveries: What was published on the broker by the agent, in order.
    """

    def __init__(self, id, *, wants=lambda topic: True):
        self.id = id
        self.broker = {}
        self.deliveries = []
        self.wants = wants
        self.clock = HybridClock()
        self.store = RetainedStore(id, tombstone_keep_us=KEEP_US)

    def set_unseen(self, topic, payload):
        """A client sets (or deletes) a value on a topic that nobody else wants."""
        self._write(topic, payload)

    def set(self, topic, payload, now_us):
        """The agent hears it, too; returns the version under which it travels."""
        self._write(topic, payload)
        version = Version(self.clock.read(now_us), 0, self.id)
        self.store.put(topic, version, payload_digest(payload), deleted=not payload, now_us=now_us)
        return version

    def hear(self, topic, payload, version, now_us):
        """A value arrives in a frame."""
        self.clock.observe(version, now_us)
        digest, deleted = payload_digest(payload), not payload
        verdict = self.store.admit(topic, version, digest, deleted=deleted, now_us=now_us)
        if verdict is Verdict.NEWER:
            self._publish(topic, payload)

    def look(self, now_us):
        found = {topic: payload_digest(payload) for topic, payload in self.broker.items()}
        since = self.store.touched
        for topic in self.store.on_found(found, since=since, now_us=now_us):
            self._publish(topic, b"")
        for _ in self.store.on_scanned(["#"], found, since=since, now_us=now_us):
            pass

    def restart_agent(self):
        """Our broker runs on."""
        whole = self.store.save()()
        self.store = RetainedStore(self.id, tombstone_keep_us=KEEP_US)
        self.store.load(whole)
        self.clock = HybridClock()
        self.clock.observe(self.store.newest(), 0)

    def restart_broker(self, file):
        """Our broker comes up with the values in an old file."""
        self.broker = dict(file)
        self.store.broker_restarted()

    def compare(self, others, now_us):
        """One comparison with ``others``, whose letters all arrive."""
        self.look(now_us)
        own = {"#": buckets_of(self.store)}
        round_ = Round(self.store, wanted=self._wanted, own=own)
        by_id = {other.id: other for other in others}
        for other in others:
            other.look(now_us)
            buckets = buckets_of(other.store)
            if buckets and buckets != own["#"]:
                way = (self.id, other.id)
                self._exchange(round_, round_.on_offer(way, make_offer("#", buckets)), by_id)
        assert not round_.reading
        self._fetch(round_, by_id, now_us)
        for way, news in round_.news():
            by_id[way[-1]].on_news((way[-1], self.id), news, self, now_us)

    def on_news(self, way, news, sender, now_us):
        assert isinstance(news, RetainedNews)
        self.look(now_us)
        round_ = Round(self.store, wanted=self._wanted)
        round_.on_news(way, news)
        self._fetch(round_, {sender.id: sender}, now_us)

    def _exchange(self, round_, post, by_id):
        while post:
            way, pull = post.pop(0)
            assert isinstance(pull, RetainedPull)
            post += round_.on_page(way, answer_pull(by_id[way[-1]].store, pull))

    def _fetch(self, round_, by_id, now_us):
        while round_.undecided:
            erase, _ = round_.decide(now_us)
            for topic, version in erase:
                self._publish(topic, b"")
                self.store.put(topic, version, 0, deleted=True, now_us=now_us)
        while (ask := round_.next_ask()) is not None:
            way, question = ask
            for entry, packet in round_.on_values(way, by_id[way[-1]].answer(question)):
                self.clock.observe(version_of(entry), now_us)
                self._publish(entry.topic, packet)
                self.store.put(
                    entry.topic, version_of(entry), entry.digest, deleted=False, now_us=now_us
                )

    def answer(self, question):
        assert isinstance(question, RetainedAsk)
        some = [topic for topic in question.topics if topic in self.broker]
        entries = tuple(as_entry(topic, self.store.get(topic)) for topic in some)
        return RetainedValues("#", entries, tuple(self.broker[topic] for topic in some))

    def _wanted(self, topic):
        entry = self.store.get(topic)
        return self.wants(topic) or (entry is not None and (entry.here or entry.deleted))

    def _publish(self, topic, payload):
        self.deliveries.append((topic, payload))
        self._write(topic, payload)

    def _write(self, topic, payload):
        if payload:
            self.broker[topic] = payload
        else:
            self.broker.pop(topic, None)
