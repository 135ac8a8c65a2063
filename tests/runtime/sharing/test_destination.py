"""Parcels at the broker that serves: published once, confirmed in time, and never stuck."""

from federator.protocol.sharing.parcels import Confirmation
from federator.protocol.sharing.returns import TRIES_MAX
from federator.runtime.sharing.destination import Returned
from tests.real.polling import until
from tests.runtime.sharing.share_world import EPOCH, N2, N3, US, Agent, packet, payloads


async def test_a_parcel_is_published_once_and_confirmed_when_our_broker_has_it():
    agent = Agent((US, 1))

    agent.parcel(1, packet(b"a"), packet(b"b"))
    agent.parcel(1, packet(b"a"), packet(b"b"))
    agent.broker.settled_through = 1
    agent.parcel(2, packet(b"c"))
    assert agent.broker.published == [b"a", b"b", b"c"]
    agent.broker.settled_through = 2
    await until(lambda: len(agent.sent) == 1, "a confirmation")
    agent.broker.settled_through = 3
    await until(lambda: len(agent.sent) == 2, "another one")

    assert [(to, said) for to, said, _ in agent.sent] == [
        (N2, Confirmation(EPOCH, ((1, 1),))),
        (N2, Confirmation(EPOCH, ((2, 2),))),
    ]


async def test_what_our_connection_has_no_room_for_waits_in_order():
    agent = Agent((US, 1))
    agent.broker.room = 1

    agent.parcel(1, packet(b"a"), packet(b"b"))
    agent.parcel(2, packet(b"c"))
    assert agent.broker.published == [b"a"]
    agent.broker.room = 9
    await until(lambda: len(agent.broker.published) == 3, "the rest")
    agent.broker.settled_through = 3
    await until(lambda: len(agent.sent) == 1, "a confirmation")

    assert agent.broker.published == [b"a", b"b", b"c"]
    assert agent.sent[0][1] == Confirmation(EPOCH, ((1, 2),))


async def test_a_parcel_that_rules_have_emptied_is_confirmed_for_nothing_more_comes():
    agent = Agent((US, 1))

    agent.parcel(1)

    await until(lambda: len(agent.sent) == 1, "a confirmation")
    assert agent.sent[0][1] == Confirmation(EPOCH, ((1, 1),))
    assert agent.counters.malformed == 0


async def test_parcels_of_qos_0_are_not_confirmed_and_lost_without_a_connection():
    agent = Agent((US, 1))

    agent.parcel(0, packet(b"a", qos=0))
    agent.broker.connected = False
    agent.parcel(0, packet(b"b", qos=0))

    assert agent.broker.published == [b"a"]
    assert (agent.counters.delivered, agent.counters.lost) == (1, 1)


async def test_what_no_broker_would_take_is_counted_and_not_confirmed():
    agent = Agent((US, 1))

    agent.parcel(1, packet(b"a", qos=0))
    agent.parcel(2, packet(b"a", topic="$SYS/x"))
    agent.parcel(0, packet(b"a", qos=1))

    assert agent.broker.published == []
    assert agent.counters.malformed == 3


async def test_a_parcel_that_finds_no_member_any_more_goes_on_to_others():
    agent = Agent((N3, 1))

    agent.parcel(1, packet(b"a"))

    ((to, parcel, _),) = agent.sent
    assert (to, payloads(parcel.run)) == (N3, [b"a"])
    assert agent.broker.published == []
    await until(lambda: len(agent.sent) == 2, "it is confirmed: it is ours now")


async def test_what_a_stand_in_gets_of_ours_is_published_again_and_of_clients_it_is_not():
    agent = Agent((US, 1), (N2, 1))
    agent.parcel(1, packet(b"a"))

    fates = agent.taken(packet(b"a"), packet(b"b"))

    assert fates == [Returned.PUBLISHED_AGAIN, Returned.NOT_OURS]
    assert agent.broker.published == [b"a", b"a"]
    assert (agent.counters.delivered, agent.counters.returned) == (1, 1)


async def test_what_no_member_ever_gets_is_not_published_for_ever():
    agent = Agent((US, 1), (N2, 1))
    agent.parcel(1, packet(b"a"))

    fates = [agent.taken(packet(b"a"))[0] for _ in range(TRIES_MAX)]

    assert fates == [Returned.PUBLISHED_AGAIN] * (TRIES_MAX - 1) + [Returned.GIVEN_UP]


async def test_what_ordinary_subscribers_here_get_serves_members_once_everybody_knows_of_them():
    agent = Agent((US, 1))

    wanted = agent.destination.wanted
    for filter in ("jobs/1", "x"):
        wanted.add(filter)
    agent.destination.on_interest(frozenset({"jobs/1", "x"}), frozenset())
    agent.parcel(0, packet(b"early", qos=0))
    await until(lambda: not agent.destination._settling, "their interest is known")
    agent.parcel(0, packet(b"left to them", qos=0))
    wanted.discard("jobs/1")
    agent.destination.on_interest(frozenset(), frozenset({"jobs/1"}))
    agent.parcel(0, packet(b"after them", qos=0))

    assert agent.broker.published == [b"early", b"after them"]
    assert agent.counters.left_to_others == 1
