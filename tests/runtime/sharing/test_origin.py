"""What leaves a broker for groups: to whom, with which flags, and until when."""

from federator.protocol.sharing.parcels import Confirmation
from tests.real.polling import until
from tests.runtime.sharing.share_world import (
    EPOCH,
    JOBS,
    N2,
    N3,
    US,
    Agent,
    inbound,
    packet,
    payloads,
)


def told(agent):
    """To whom what went, and under which number."""
    return [(to, parcel.number, payloads(parcel.run)) for to, parcel, _ in agent.sent]


async def test_a_read_is_dealt_out_and_each_broker_gets_one_parcel_of_it():
    agent = Agent((N2, 1), (N3, 1))

    agent.origin.on_publishes(*inbound(*(packet(b"%d" % n) for n in range(4))))

    (first, *_), (second, *_) = told(agent)
    assert {first, second} == {N2, N3}
    assert sorted(payload for _, _, run in told(agent) for payload in run) == [
        b"0",
        b"1",
        b"2",
        b"3",
    ]
    assert len(agent.origin.ledger) == 4


async def test_qos_0_is_not_owed_and_other_topics_are_nobodys():
    agent = Agent((N2, 1))

    agent.origin.on_publishes(*inbound(packet(b"a", qos=0), packet(b"b", topic="x")))

    assert told(agent) == [(N2, 0, [b"a"])]
    assert len(agent.origin.ledger) == 0


async def test_what_rules_keep_here_does_not_leave_and_what_stand_ins_got_of_it_is_given_back():
    agent = Agent((US, 1), (N2, 1), allows_export=lambda topic: topic != "jobs/secret")
    chunk, publishes = inbound(packet(b"a", topic="jobs/secret"))

    agent.origin.on_taken((p.topic, chunk[start:end], False) for p, start, end in publishes)

    assert agent.sent == []
    assert agent.broker.published == [b"a"]


async def test_no_broker_elsewhere_retains_what_goes_to_a_member():
    agent = Agent((N2, 1))

    agent.origin.on_publishes(*inbound(packet(b"a", retain=True, qos=0)))

    run = bytes(agent.sent[0][1].run)
    assert run == packet(b"a", qos=0)


async def test_a_confirmation_of_another_epoch_or_broker_is_not_ours():
    agent = Agent((N2, 1))
    agent.origin.on_publishes(*inbound(packet(b"a")))

    agent.origin.on_confirmation(N2, Confirmation(EPOCH + 1, ((1, 1),)))
    agent.origin.on_confirmation(N3, Confirmation(EPOCH, ((1, 1),)))
    assert len(agent.origin.ledger) == 1
    agent.origin.on_confirmation(N2, Confirmation(EPOCH, ((1, 1),)))
    assert len(agent.origin.ledger) == 0


async def test_what_is_not_confirmed_is_sent_again():
    agent = Agent((N2, 1), retry_min_ms=10, retry_max_ms=20)
    agent.reachable = False
    agent.origin.on_publishes(*inbound(packet(b"a")))
    agent.reachable = True

    await until(lambda: len(agent.sent) == 2, "it is sent again, and again")

    assert told(agent) == [(N2, 1, [b"a"])] * 2
    assert agent.counters.no_way == 1


async def test_what_a_broker_owed_goes_to_others_or_waits_for_some():
    agent = Agent((N2, 1))
    agent.origin.on_publishes(*inbound(packet(b"a"), packet(b"b")))

    agent.know(gone=[N2], orphans=[JOBS])
    assert len(agent.origin.ledger) == 2
    agent.know((N3, 1))

    assert told(agent) == [(N2, 1, [b"a", b"b"]), (N3, 1, [b"a", b"b"])]
    assert agent.counters.reassigned == 2


async def test_what_nobody_takes_in_time_is_lost_and_said():
    agent = Agent((N2, 1), keep_ms=30)
    agent.origin.on_publishes(*inbound(packet(b"a")))

    agent.know(gone=[N2], orphans=[JOBS])
    await until(lambda: agent.counters.lost == 1, "it is given up")

    assert len(agent.origin.ledger) == 0


async def test_what_is_published_while_nobody_is_in_reach_waits_for_members_but_not_at_qos_0():
    agent = Agent()
    agent.know(orphans=[JOBS])
    agent.origin.on_publishes(*inbound(packet(b"a", retain=True), packet(b"b", qos=0)))
    assert (agent.sent, len(agent.origin.ledger)) == ([], 1)

    agent.know((N3, 1))

    assert told(agent) == [(N3, 1, [b"a"])]


async def test_what_was_for_a_group_that_everybody_left_is_nobodys():
    agent = Agent((N2, 1))
    agent.origin.on_publishes(*inbound(packet(b"a")))

    agent.know(gone=[N2])

    assert (len(agent.origin.ledger), agent.counters.lost) == (0, 0)


async def test_without_room_publications_are_dropped_and_counted():
    agent = Agent((N2, 1), bytes_max=20)

    agent.origin.on_publishes(*inbound(packet(b"a" * 30)))

    assert (agent.sent, agent.counters.lost) == ([], 1)


async def test_what_was_for_a_broker_that_is_gone_may_come_back_to_members_here():
    agent = Agent((N2, 1))
    agent.origin.on_publishes(*inbound(packet(b"a")))

    agent.know((US, 1), gone=[N2])

    assert agent.broker.published == [b"a"]
