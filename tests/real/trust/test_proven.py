"""A member with a valid key invents publications of another: who judges proofs hears none of them.

docs/security.md, "Proven"; docs/protocol.md 11.
"""

import asyncio

import mqtt5

from federator.protocol.custody.proofs import frame_text
from federator.protocol.forwarding.frames import CUSTODY_FLAG, REPAIR_FLAG
from tests.real.agent_log import named
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.polling import until
from tests.real.trust.test_poison import scene

INVENTED = 1_000_000
ROUNDS = 20
BELIEVED_WITHIN_S = 60


def inventions(member, real):
    """Frames in agent 1's name that hold publications of nobody, in the place of true ones."""
    for ahead in (1, 2, 3):
        body = mqtt5.PublishPacket(
            "a/b", b"%d" % (INVENTED + ahead), qos=mqtt5.QoS(1), packet_id=7
        ).write()
        seq = real.seq + ahead
        chain = (seq - 1).to_bytes(8, "big")
        fields = {"seq": seq, "chain": chain, "body": body, "publications": 1}
        own = member.forged(real, **fields)
        own.proof = member.guard.vouch(frame_text(b"fed", own))
        yield own  # proven by somebody else
        yield member.forged(real, **fields, proof=b"")  # its proof stripped
        yield member.forged(real, **fields)  # with the proof of another frame
        yield member.forged(real, **fields, flags=CUSTODY_FLAG | REPAIR_FLAG)
        to_itself = {"flags": CUSTODY_FLAG | REPAIR_FLAG, "origin": member.neighbour, "proof": b""}
        yield member.forged(real, **{**fields, **to_itself, "chain": bytes(8)})


async def invent(on, *believers):
    """Say inventions in many places, and until each of ``believers`` heard some.

    What stands in their place may be faster, on a busy machine always.
    """
    async with asyncio.timeout(BELIEVED_WITHIN_S):
        rounds = 0
        while rounds < ROUNDS or not all(map(invented, believers)):
            rounds += 1
            seen = on.publisher.sent
            real = await on.overheard(CUSTODY_FLAG)
            for frame in inventions(on.member, real):
                on.member.send(frame)
            await until(lambda n=seen: on.publisher.sent > n + 2, "more is published")


def invented(subscriber):
    return [number for number in subscriber.came if number > INVENTED]


async def test_no_member_invents_a_publication_of_another(plain, office):
    async with scene(plain, office, qos=1, security="proven") as on:
        async with on.undisturbed("proven: inventions"):
            await invent(on)
            await gets_through(on.publisher, *on.subscribers)

        assert not any(invented(subscriber) for subscriber in on.subscribers)
        assert not any(subscriber.duplicates for subscriber in on.subscribers)
        first, *_ = named(on.agents[1], "custody.unproven")
        assert (first["neighbour"], first["origin"]) == (9, 1)
        assert not named(on.agents[2], "custody.unproven")


async def test_who_does_not_judge_believes_it(plain, office):
    async with scene(plain, office, qos=1) as on:
        await invent(on, *on.subscribers)


async def test_a_destination_judges_what_a_relay_believed(plain, office):
    async with scene(plain, office, qos=1, security=("proven", "signed", "proven")) as on:
        near, far = on.subscribers
        first = on.publisher.sent
        await invent(on, near)
        await gets_through(on.publisher, *on.subscribers)
        on.publisher.pause()

        wanted = set(range(first, on.publisher.sent))
        await until(lambda: wanted <= far.came.keys(), "all arrive")
        assert not invented(far)
        assert not far.duplicates
        assert {said["neighbour"] for said in named(on.agents[2], "custody.unproven")} == {2}


async def test_agents_change_over_one_by_one(plain, office):
    async with scene(plain, office, qos=1) as on:
        first = on.publisher.sent
        for index, neighbours in ((2, (2,)), (0, (2,)), (1, (1, 3, 9))):
            agent = on.agents[index]
            await agent.stop()
            agent.config.security = "proven"
            await agent.start()
            await eventually(agent, linked(*neighbours), "linked again")
            await gets_through(on.publisher, *on.subscribers)
        on.publisher.pause()

        wanted = set(range(first, on.publisher.sent))
        for subscriber in on.subscribers:
            await until(lambda s=subscriber: wanted <= s.came.keys(), "all arrive")
            assert not subscriber.duplicates
        assert not any(named(agent, "custody.unproven") for agent in on.agents)
