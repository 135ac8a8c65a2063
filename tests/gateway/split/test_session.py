"""A client of several brokers sees one: what it hears is what a single broker would say."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.gateway import wire
from federator.gateway.split.session import SplitSession
from federator.gateway.split.topic_owners import REST, TopicOwners
from federator.gateway.wire import V5, V311, Kind, MalformedError, Property, Reason
from federator.protocol.filters import matches
from tests.gateway.split.split_world import (
    FILTERS,
    TOPICS,
    UPSTREAMS,
    One,
    Several,
    connect,
    handed,
)

versions = st.sampled_from([V311, V5])
rooms = st.sampled_from([1, 2, 3, 20])
qos = st.sampled_from([0, 1, 2])

filters = st.lists(st.sampled_from(FILTERS), min_size=1, max_size=3)
words = st.one_of(
    st.tuples(st.just("subscribe"), filters, qos),
    st.tuples(st.just("unsubscribe"), filters),
    st.tuples(st.just("publish"), st.sampled_from(TOPICS), qos, st.booleans()),
    st.tuples(st.just("outside"), st.sampled_from(TOPICS), qos, st.booleans()),
    st.tuples(st.just("answer"), st.integers(1, 4)),
    st.tuples(st.just("ping")),
)
stories = st.lists(words, min_size=4, max_size=40)


class Storyteller:
    """Says the same to any world, and waits where ids would run out."""

    def __init__(self, world, version):
        self.world = world
        self.version = version
        self._count = 0

    def tell(self, word):
        """One thing happens."""
        self._count += 1
        number, payload = self._count % 1_000 + 1, b"%d" % self._count
        match word:
            case "subscribe", filters, options:
                wish = tuple((each, options) for each in dict.fromkeys(filters))
                packet = wire.write_request(wire.Subscribe(number, wish), self.version)
                self.world.say(packet)
            case "unsubscribe", filters:
                gone = tuple(dict.fromkeys(filters))
                packet = wire.write_request(wire.Unsubscribe(number, gone), self.version)
                self.world.say(packet)
            case "publish", topic, level, retain:
                self.world.say(
                    wire.write_publish(
                        topic,
                        payload,
                        version=self.version,
                        qos=level,
                        retain=retain,
                        packet_id=number if level else 0,
                    )
                )
            case "outside", topic, level, retain:
                self.world.outside(topic, payload, level, retain)
            case "answer", count:
                self.world.say(self.world.client.answer(count))
            case ("ping",):
                self.world.say(wire.PINGREQ)


def lived(world, version, story):
    """The world after the story, when everything was answered."""
    teller = Storyteller(world, version)
    for word in story:
        teller.tell(word)
        world.settle()
    world.settle(answer=True)
    return world


@settings(max_examples=400, deadline=None)
@given(versions, rooms, st.booleans(), stories)
def test_a_client_of_several_brokers_hears_what_a_single_one_would_say(
    version, room, federated, story
):
    several = lived(Several(version, room, federated=federated), version, story)
    one = lived(One(version, room), version, story)

    assert several.client.came == one.client.came
    assert sorted(several.client.answers[1:]) == sorted(one.client.answers[1:])  # but CONNACK
    if not federated:
        assert handed(several) == handed(one)


@settings(max_examples=200, deadline=None)
@given(versions, rooms, stories, st.lists(st.sampled_from([1, 3, 17, None]), max_size=60))
def test_wherever_reads_end_ids_stay_apart_and_nothing_is_lost(version, room, story, sizes):
    several, one = Several(version, room), lived(One(version, room), version, story)
    teller = Storyteller(several, version)

    for word, size in zip(story, [*sizes, *[None] * len(story)], strict=False):
        teller.tell(word)
        if word[0] == "outside":
            several.settle()  # so that it comes when it came to the other
        several.step(size)
    several.settle(answer=True)

    published = {b"%d" % at for at, word in enumerate(story, 1) if word[0] == "publish"}
    assert published <= set(handed(several))
    assert handed(several) == handed(one)
    assert not several.client.in_flight


@settings(max_examples=200, deadline=None)
@given(versions, stories, st.lists(st.tuples(st.integers(0, 39), st.integers(0, 2)), max_size=4))
def test_whichever_broker_dies_all_that_was_acknowledged_is_with_one_and_all_is_answered(
    version, story, deaths
):
    several = Several(version, 20)
    teller = Storyteller(several, version)
    dying = dict(deaths)

    for at, word in enumerate(story):
        teller.tell(word)
        several.step()
        if at in dying:
            several.kill(dying[at])
    several.settle(answer=True)

    kinds = [packet[0] & 0xF0 for packet in several.client.answers]
    said = [word[0] for word in story]
    assert kinds.count(Kind.SUBACK) == said.count("subscribe")
    assert kinds.count(Kind.UNSUBACK) == said.count("unsubscribe")
    assert kinds.count(Kind.PINGRESP) == said.count("ping")
    at_qos = [word[2] for word in story if word[0] == "publish"]
    assert kinds.count(Kind.PUBACK) == at_qos.count(1)
    assert kinds.count(Kind.PUBCOMP) == at_qos.count(2)
    taken = set(handed(several)) | {p for broker in several.killed for p in broker.handed}
    numbers = [at for at, word in enumerate(story, 1) if word[0] == "publish" and word[2]]
    assert {b"%d" % number for number in numbers} <= taken


def test_every_subscription_stands_at_the_owner_of_each_topic_it_matches():
    owners = TopicOwners(UPSTREAMS)

    for filter_, topic in product(FILTERS, TOPICS):
        if matches(filter_, topic):
            assert owners.of(topic) in owners.sharing(filter_)

    assert owners.of("edge/2/a") == 1, "the first upstream that matches has it"
    assert owners.sharing("edge/2/a") == (1,)
    assert owners.sharing("far/1/x") == (2,)
    assert owners.sharing("b") == (REST,)
    assert owners.sharing("#") == (1, 2, REST)


def test_what_a_broker_delivers_that_does_not_own_the_topic_is_answered_and_dropped():
    several = Several(V5, 20, federated=True)
    several.say(wire.write_request(wire.Subscribe(1, (("#", 2),)), V5))
    several.settle()

    for level in (0, 1, 2):
        several.outside("edge/1", b"x%d" % level, level, False)
    several.settle(answer=True)

    assert several.client.came == {("edge/1", n): [(b"x%d" % n, False)] for n in (0, 1, 2)}
    assert not any(session.unanswered for session in several.sessions)


def test_what_one_broker_grants_and_another_refuses_is_refused_and_taken_back():
    several = Several(V5, 20)
    several.brokers[2].codes["#"] = 0x87

    several.say(wire.write_request(wire.Subscribe(7, (("#", 1), ("b", 1))), V5))
    several.settle()

    answer = several.client.answers[-1]
    assert wire.read_answer(answer, wire.only(answer), V5).codes == bytes((0x87, 1))
    assert [set(broker.filters) for broker in several.brokers] == [{"b"}, set(), set()]


def test_a_group_that_would_share_topics_of_two_brokers_is_refused():
    several = Several(V5, 20)

    wish = (("$share/g/#", 1), ("$share/g/a/b", 1))
    several.say(wire.write_request(wire.Subscribe(7, wish), V5))
    several.settle()

    answer = several.client.answers[-1]
    assert wire.read_answer(answer, wire.only(answer), V5).codes == bytes((0x9E, 1))
    assert [set(broker.filters) for broker in several.brokers] == [{"$share/g/a/b"}, set(), set()]


def test_the_will_is_left_at_the_owner_of_its_topic_and_each_way_has_its_own_name():
    several = Several(V5, 20)

    assert [broker.will is not None for broker in several.brokers] == [False, True, False]
    names = [each.client_id for each in several.connects]
    assert names == ["c", "c~federator-1", "c~federator-2"]


@pytest.mark.parametrize("version", [V311, V5])
def test_a_release_that_an_earlier_connection_owes_is_answered_once_by_who_knows_it(version):
    several = Several(version, 20)
    several.brokers[1].received[9] = "edge/1", b"x", 2, False

    several.say(wire.write_ack(Kind.PUBREL, 9, version))
    several.settle()

    assert several.client.answers[1:] == [wire.write_ack(Kind.PUBCOMP, 9, version)]
    assert several.brokers[1].handed == [b"x"]


def test_unfinished_deliveries_keep_their_ids_for_the_clients_next_connection():
    several = Several(V5, 20)
    several.say(wire.write_request(wire.Subscribe(1, (("#", 2),)), V5))
    several.settle()
    for topic in ("edge/1", "far/1/x", "b"):  # each broker's first, under the same number
        several.outside(topic, b"x", 2, False)
    several.settle()

    assert set(several.split.unreleased) == {(0, 1), (1, 1), (2, 1)}
    assert set(several.split.unreleased.values()) == set(several.client.in_flight)


@pytest.mark.parametrize("last", [Reason.SUCCESS, Reason.NOT_AUTHORIZED])
def test_what_an_earlier_connection_left_is_taken_when_all_brokers_let_the_client_in(last):
    taken = []
    split = SplitSession(
        connect(V5, 20), TopicOwners(UPSTREAMS), take_unreleased=lambda: taken.append(True) or {}
    )
    legs = len(split.to_legs)

    for leg in range(legs):
        assert not taken
        reason = last if leg == legs - 1 else Reason.SUCCESS
        connack = wire.write_connack(wire.Connack(not reason, reason), V5)
        split.from_leg(leg, connack, [wire.only(connack)])

    assert taken == [True] * (last == Reason.SUCCESS)


def test_a_topic_alias_is_refused_as_it_was_never_offered():
    several = Several(V5, 20)
    properties = ((wire.Property.TOPIC_ALIAS, 1),)
    packet = wire.write_publish("b", b"", version=V5, properties=properties)

    with pytest.raises(MalformedError) as refused:
        several.split.from_client(packet, [wire.only(packet)], 1)

    assert refused.value.reason == Reason.TOPIC_ALIAS_INVALID


def test_topic_aliases_lead_to_the_topics_owner_which_never_hears_of_them():
    nameless = replace(connect(V5, 20), client_id="ours", assigned=True)
    split = SplitSession(nameless, TopicOwners(UPSTREAMS))
    offers = wire.write_connack(wire.Connack(False, 0, ((Property.TOPIC_ALIAS_MAXIMUM, 2),)), V5)
    for leg in range(len(split.to_legs)):
        split.from_leg(leg, offers, [wire.only(offers)])
    (welcome,) = split.to_client
    properties = ((Property.TOPIC_ALIAS, 1),)
    named, unnamed = (
        wire.write_publish(topic, b"p", version=V5, properties=properties)
        for topic in ("edge/1", "")
    )
    owner = TopicOwners(UPSTREAMS).of("edge/1")
    assert owner != REST

    for packet in (named, unnamed):
        split.from_client(packet, [wire.only(packet)], 1)

    assert split.to_legs[owner] == [wire.write_publish("edge/1", b"p", version=V5)] * 2
    assert wire.read_connack(welcome, wire.only(welcome), V5).properties == (
        (Property.TOPIC_ALIAS_MAXIMUM, 2),
        (Property.ASSIGNED_CLIENT_ID, "ours"),
    )
    assert not any(each.assigned for each in split.connects())


def test_a_broker_that_hears_nothing_is_pinged_and_the_client_does_not_hear_of_it():
    several = Several(V311, 20)
    several.now_ms = 60_000

    for _ in range(3):
        several.now_ms += 20_000  # a third of the keep-alive
        several.say(wire.write_publish("b", b"", version=V311))
        several.settle()
    several.say(wire.PINGREQ)
    several.settle()

    assert [broker.heard[Kind.PINGREQ] for broker in several.brokers] == [1, 4, 4]
    assert several.client.answers[1:] == [wire.PINGRESP]


def test_a_release_goes_to_the_broker_that_has_the_publication_and_to_no_other():
    several = Several(V5, 20)

    for packet_id, topic in enumerate(("b", "edge/1", "far/1/x"), start=1):
        several.say(wire.write_publish(topic, b"", version=V5, qos=2, packet_id=packet_id))
    several.settle()

    assert [broker.heard[Kind.PUBREL] for broker in several.brokers] == [1, 1, 1]
