"""Brokers that can talk come to retain the same. docs/protocol.md 13."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.retained.peers import Peer

TOPICS = ("a", "b/c", "b/d")
PAYLOADS = (b"", b"x", b"y")  # empty: a delete
IDS = (1, 2, 3)

EVENT = st.tuples(
    st.sampled_from(["set", "set", "lost", "unseen", "agent", "broker", "save", "compare"]),
    st.sampled_from(IDS),
    st.sampled_from(TOPICS),
    st.sampled_from(PAYLOADS),
    st.integers(-3, 3),  # by how much that agent's wall clock is wrong, in steps
)


class World:
    """Three brokers, and what is true of them."""

    def __init__(self):
        self.now_us = 1_000
        self.peers = {id: Peer(id) for id in IDS}
        self.files = {id: {} for id in IDS}

    def happen(self, what, id, topic, payload, skew):
        self.now_us += 10
        peer, others = self.peers[id], [p for p in self.peers.values() if p.id != id]
        now_us = self.now_us + skew * 10
        if what in ("set", "lost"):  # live publications reach everyone, or nobody
            version = peer.set(topic, payload, now_us)
            for other in others if what == "set" else []:
                other.hear(topic, payload, version, now_us)
        elif what == "unseen":
            peer.set_unseen(topic, payload)
        elif what == "agent":
            peer.restart_agent()
        elif what == "save":
            self.files[id] = dict(peer.broker)
        elif what == "broker":
            peer.restart_broker(self.files[id])
        else:
            peer.compare(others, now_us)

    def settle(self):
        for _ in range(2):
            for id, peer in self.peers.items():
                peer.compare([p for p in self.peers.values() if p.id != id], self.now_us)


@settings(max_examples=300)
@given(st.lists(EVENT, max_size=25))
def test_after_two_comparisons_by_everyone_all_brokers_retain_the_same(events):
    world = World()
    for event in events:
        world.happen(*event)

    world.settle()

    one, two, three = world.peers.values()
    assert one.broker == two.broker == three.broker
    for peer in world.peers.values():
        peer.deliveries.clear()
    world.settle()
    assert [peer.deliveries for peer in world.peers.values()] == [[], [], []]


@settings(max_examples=300)
@given(st.lists(EVENT.filter(lambda e: e[0] in ("set", "lost", "agent", "compare")), max_size=25))
def test_what_agents_saw_being_set_last_by_a_common_clock_is_what_is_retained(events):
    world = World()
    last = {}
    for what, id, topic, payload, _ in events:
        world.happen(what, id, topic, payload, 0)
        if what in ("set", "lost"):
            last[topic] = payload

    world.settle()

    assert world.peers[1].broker == {topic: payload for topic, payload in last.items() if payload}


@settings(max_examples=300)
@given(
    st.lists(EVENT.filter(lambda e: e[0] != "unseen"), max_size=25),
    st.sampled_from(IDS),
    st.sampled_from(TOPICS),
    st.sampled_from(PAYLOADS),
)
def test_no_restart_brings_back_an_older_value_than_others_know(events, id, topic, payload):
    world = World()
    for event in events:
        world.happen(*event)
    world.happen("compare", id, topic, payload, 0)
    world.happen("set", id, topic, payload, 5)

    for other in IDS[1:]:
        world.happen("agent", other, topic, b"", 0)
        world.happen("broker", other, topic, b"", 0)
    world.settle()

    assert world.peers[1].broker.get(topic, b"") == payload
