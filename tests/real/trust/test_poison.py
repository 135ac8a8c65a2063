"""A member with a valid key tells lies about another's numbers: that other's word stands.

docs/security.md, "Threats and answers"; docs/protocol.md 8 and 11.
"""

import contextlib

import msgspec
import pytest

from federator.protocol.forwarding.frames import CUSTODY_FLAG, REPAIR_FLAG, TAIL_FLAG, VOID_FLAG
from federator.protocol.messages.control import FilterListPage, ListKind, Solicit
from federator.protocol.types import EPOCH_LEAP_MAX
from tests.real.agent_log import named
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.polling import until
from tests.real.trust.member import Ears, Member, linked_member
from tests.real.trust.test_signed import line_of_three
from tests.real.undisturbed import undisturbed

ABSURD = 2**62
FUTURE_MS = 1_000_000


class Scene:
    """Brokers 1, 2 and 3 in a row, one stream from end to end, and member 9 linked with 2."""

    def __init__(self, brokers, agents, member, publisher, subscribers, ears):
        self.brokers = brokers
        self.agents = agents
        self.member = member
        self.publisher = publisher
        self.subscribers = subscribers
        self.ears = ears

    async def overheard(self, flags):
        """A frame of this kind that agent 1 sent."""
        await until(lambda: self._from_1(flags), "a frame is overheard")
        return self._from_1(flags)[-1]

    def _from_1(self, flags):
        return self.ears.frames(lambda f: (f.origin, f.sender, f.flags) == (1, 1, flags))

    def undisturbed(self, row):
        """What is published while the body runs comes at both subscribers, in time."""
        return undisturbed(row, self.publisher, *self.subscribers, processes=self.agents)


@contextlib.asynccontextmanager
async def scene(plain, office, *, qos, rate_hz=50, security="signed"):
    brokers, agents = await line_of_three(plain, office, security)
    own = await plain.broker()
    member = Member(9, office, own=own, victim=brokers[1], neighbour=2)
    ears = Ears(brokers[1].port, "ears", "data")
    publisher = Publisher(brokers[0].port, "a/b", client_id="pub", qos=qos, rate_hz=rate_hz)
    subscribers = [
        Subscriber(brokers[index].port, "a/#", client_id=f"sub-{index}", qos=qos)
        for index in (1, 2)
    ]
    async with linked_member(member, agents[1]), running(publisher, ears, *subscribers):
        await gets_through(publisher, *subscribers)
        yield Scene(brokers, agents, member, publisher, subscribers, ears)


def lies(kind, member, frame, tail):
    """Frames in agent 1's name, without a publication."""
    nothing = {"publications": 0, "body": b""}
    beginning = {"chain": bytes(8), **nothing}
    match kind:
        case "absurd":
            yield member.forged(frame, seq=ABSURD, **beginning)
        case "between":
            yield member.forged(frame, seq=frame.seq + 3, **beginning)
        case "near":
            yield member.forged(frame, seq=frame.seq + 1_000, **beginning)
        case "tail":
            yield member.forged(tail, seq=tail.seq + 1, chain=ABSURD.to_bytes(8))
        case "void":
            flags = CUSTODY_FLAG | REPAIR_FLAG | VOID_FLAG
            yield member.forged(frame, flags=flags, seq=ABSURD, **beginning)
        case "epoch":
            for later in (1, 2):
                epoch = frame.epoch + later * FUTURE_MS
                yield member.forged(frame, epoch=epoch, seq=1, **beginning)


@pytest.mark.parametrize("kind", ["absurd", "near", "between", "tail", "void", "epoch"])
@pytest.mark.few(2)
async def test_no_member_moves_the_chain_of_another(plain, office, kind):
    async with scene(plain, office, qos=1) as on:
        frame = await on.overheard(CUSTODY_FLAG)
        on.publisher.pause()
        tail = await on.overheard(TAIL_FLAG)
        on.publisher.resume()
        await gets_through(on.publisher, *on.subscribers)

        async with on.undisturbed(f"8 numbers, {kind}"):
            for _ in range(3):
                frame = await on.overheard(CUSTODY_FLAG)
                for lie in lies(kind, on.member, frame, tail):
                    on.member.send(lie)
                await gets_through(on.publisher, *on.subscribers)


@pytest.mark.parametrize("kind", ["absurd", "epoch"])
async def test_no_member_makes_the_frames_of_another_old(plain, office, kind):
    async with scene(plain, office, qos=0) as on:
        frame = await on.overheard(0)  # before: the first lies bring its publication once more
        async with on.undisturbed(f"7 epochs at QoS 0, {kind}"):
            for _ in range(3):
                for lie in lies(kind, on.member, frame, None):
                    body = bytes(frame.body)
                    on.member.send(on.member.forged(lie, publications=1, body=body))
                await gets_through(on.publisher, *on.subscribers)
                frame = await on.overheard(0)


async def test_no_member_moves_the_epoch_of_another(plain, office):
    async with scene(plain, office, qos=1) as on:
        before = [(await agent.status())["epoch"] for agent in on.agents]

        async with on.undisturbed("9 solicits"):
            for leap in range(1, 5):
                for core, epoch in enumerate(before, 1):
                    on.member.say(Solicit(9, core, epoch + leap * (EPOCH_LEAP_MAX - 1), 1, 255))
            for agent in on.agents:
                await until(lambda a=agent: named(a, "epoch.unproven"), "the solicits came")
            await gets_through(on.publisher, *on.subscribers)

        assert [(await agent.status())["epoch"] for agent in on.agents] == before
    assert not [agent for agent in on.agents if named(agent, "id.conflict")]


@pytest.mark.full
async def test_pages_of_a_list_that_never_ends_hold_nobody_up(plain, office):
    async with scene(plain, office, qos=1) as on:
        page = FilterListPage(9, ListKind.CORE, 9, 1, 5, 0, 4_000, FILTERS)
        async with on.undisturbed("15 pages without end"):
            for number in range(PAGES):
                page = msgspec.structs.replace(page, page=number)
                await until(lambda p=page: on.member.say(p), "there is room for a page")
                await gets_through(on.publisher, *on.subscribers)

        counters = (await on.agents[1].status())["counters"]
        assert counters["control_malformed"]["ctl"] == PAGES


PAGES = 400
FILTERS = tuple(f"a/{number:06}/{'x' * 100}" for number in range(8_192))


async def test_a_recorded_bye_takes_no_link_down(plain, office):
    async with scene(plain, office, qos=1) as on:
        recorder = Recorder(on.brokers[1].port)
        async with running(recorder):
            await until(lambda: recorder.link.connected, "the recorder listens")
            on.brokers[0].kill9()
            await until(lambda: recorder.byes, "agent 1 says bye: its broker is gone")
            await on.brokers[0].start()
            await eventually(on.agents[1], linked(1, 3, 9), "linked again")
            await gets_through(on.publisher, *on.subscribers)
            async with on.undisturbed("10 byes"):
                first = on.publisher.sent
                while on.publisher.sent < first + 100:
                    sent = on.publisher.sent
                    recorder.repeat()
                    await until(lambda n=sent: on.publisher.sent >= n + 5, "a tenth of a second")


class Recorder(Ears):
    """Notes byes as they come, and says them again."""

    def __init__(self, port):
        super().__init__(port, "recorder", "ctl")

    @property
    def byes(self):
        return [p for kind, p in self.heard if kind == "ctl" and p[:1] == b"S"]

    def repeat(self):
        for payload in set(self.byes):
            self.link.publish("$fed/fed/ctl", payload)
