"""What a client is given that moved from one broker to another."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from federator.gateway import wire
from federator.gateway.session.healing import missed
from federator.gateway.session.journal import Journal
from federator.gateway.session.session import ClientSession
from federator.gateway.session.subscriptions import Subscription
from federator.gateway.wire import V5, V311


def session(version=V311, client="c", **filters):
    made = ClientSession(wire.Connect(version, client, True, 60))
    for filter_, subscription in filters.items():
        made.subscriptions.granted[filter_] = subscription
    return made


def subscription(granted=1, *, options=1, identifier=0, since_ms=0):
    return Subscription(options, identifier, granted, since_ms)


def journal(*publications, version=V311, client="p", **options):
    kept = Journal(recent_ms=10**6, bytes_max=10**6)
    for at_ms, (topic, payload, qos) in enumerate(publications):
        packet = wire.write_publish(
            topic, payload, version=version, qos=qos, packet_id=9, **options
        )
        kept.acknowledged([packet], client=client, version=version, broker=1, now_ms=at_ms)
    return kept.between(0, 10**6)


def got(client, *publications):
    block = b"".join(
        wire.write_publish(topic, payload, version=client.version, qos=1, packet_id=3)
        for topic, payload in publications
    )
    client.recent.add(block + b"\x32\x50half", 0)


def given_to(client, publications, **options):
    options.setdefault("unseen_topics", True)
    packets = missed(client, publications, **options)
    return [wire.read_payload(packet, client.version)[:2] for packet in packets]


payloads = st.sampled_from([b"a", b"b", b"c"])


@given(st.lists(payloads, max_size=12), st.data())
def test_a_client_ends_up_with_each_publication_as_often_as_it_was_made(made, data):
    came = [payload for payload in made if data.draw(st.booleans())]
    client = session(t=subscription())
    got(client, *(("t", payload) for payload in came))

    rest = given_to(client, journal(*(("t", payload, 1) for payload in made)))

    assert Counter(came) + Counter(payload for _, payload in rest) == Counter(made)


def test_only_what_its_subscriptions_ask_for_at_qos_1_or_2_is_given():
    client = session(
        **{
            "a/+": subscription(),
            "zero": subscription(0),
            "$share/g/s": subscription(),
            "late": subscription(since_ms=6),
        }
    )
    made = journal(
        ("a/b", b"1", 1), ("a", b"2", 1), ("zero", b"3", 1), ("s", b"4", 1), ("late", b"5", 1)
    )

    assert given_to(client, made) == [(b"a/b", b"1")]


def test_nothing_is_given_on_a_topic_on_which_no_broker_ever_gave_it_anything():
    client = session(**{"#": subscription()})
    client.recent.see(b"known")

    made = [*journal(("known", b"1", 1), ("secret", b"2", 1))]

    assert given_to(client, made, unseen_topics=False) == [(b"known", b"1")]
    assert given_to(client, made, unseen_topics=True) == [(b"known", b"1"), (b"secret", b"2")]


def test_a_client_that_wants_none_of_its_own_gets_none_of_its_own():
    client = session(V5, t=subscription(options=wire.NO_LOCAL | 1))

    assert given_to(client, journal(("t", b"1", 1), client="c")) == []
    assert given_to(client, journal(("t", b"1", 1), client="other")) == [(b"t", b"1")]


def test_versions_qos_identifiers_and_the_retain_flag_are_as_a_broker_would_send_them():
    made = [*journal(("t", b"1", 2), version=V5, retain=True, properties=((0x03, "text"),))]
    options = wire.RETAIN_AS_PUBLISHED | 1
    five = session(V5, t=subscription(1, options=options, identifier=8))
    three = session(V311, t=subscription(2))

    (to_five,) = missed(five, made, unseen_topics=True)
    (to_three,) = missed(three, made, unseen_topics=True)

    assert to_five[0] == 0x33
    assert wire.read_payload(to_five, V5)[2] == ((0x03, "text"), (0x0B, 8))
    assert to_three[0] == 0x34
    assert wire.read_payload(to_three, V311) == (b"t", b"1", ())


def test_in_a_planned_move_the_old_brokers_deliveries_count_and_come_first():
    client = session(t=subscription())
    got(client, ("t", b"1"))
    drained = [
        wire.write_publish("t", payload, version=V311, qos=1, packet_id=4)
        for payload in (b"1", b"2", b"3")
    ]
    made = journal(*(("t", payload, 1) for payload in (b"1", b"3", b"4")))

    assert given_to(client, made, drained=drained) == [(b"t", b"2"), (b"t", b"3"), (b"t", b"4")]
