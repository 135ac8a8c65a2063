"""A member announces as many filters as it likes, in messages of lawful size: nobody else waits.

docs/security.md, "Threats and answers"; docs/protocol.md 5.
"""

import asyncio
import contextlib

import msgspec
import pytest

from federator.errors import DecodeError
from federator.protocol.filters.digests import digest_of
from federator.protocol.messages.codec import decode
from federator.protocol.messages.control import (
    CoreAnn,
    FilterListPage,
    FilterListRequest,
    ListKind,
    MeshMembAnn,
)
from federator.protocol.routing.filter_lists import pages_of
from tests.real.plain_agents import eventually, linked
from tests.real.polling import until
from tests.real.trust.member import Member, linked_member
from tests.real.trust.test_signed import line_of_three
from tests.real.trust.traffic import traffic
from tests.real.undisturbed import undisturbed

FILTERS = 100_000
AGAIN_S = 2.0
ENOUGH_S = 120.0


class Greedy(Member):
    """Says that it wants ``filters``, and hands the list out page by page when asked.

    Args:
        core: In whose meshes. Its own: it announces them itself.
    """

    def __init__(self, *args, core, **options):
        super().__init__(*args, **options)
        self._core = core
        self._seq = 0
        self._asked = asyncio.Event()
        names = tuple(f"greedy/{number:06}" for number in range(FILTERS))
        self._digest = digest_of(names)
        kind = ListKind.CORE if core == self.id else ListKind.MEMBERSHIP
        blank = FilterListPage(self.id, kind, core, 1, self._digest, page=0, pages=0, filters=())
        self._pages = tuple(pages_of(names, blank))

    async def want(self, epoch):
        """Announce the list for ever; ``epoch`` is the core's."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._hand_out())
            while True:
                self._seq += 1
                self.say(self._word(epoch))
                await asyncio.sleep(AGAIN_S)

    def _word(self, epoch):
        if self._core != self.id:
            return MeshMembAnn(self.id, self._core, epoch, 1, (), (), self._digest, FILTERS)
        word = CoreAnn(
            self.id, self.id, 7, self.epoch, self._seq, 0, True, (), (), self._digest, FILTERS
        )
        return self.guard.prove(msgspec.structs.replace(word, path=(self.id,)))

    def on_message(self, kind, payload):
        super().on_message(kind, payload)
        if kind in ("hello", "data"):
            return
        with contextlib.suppress(DecodeError):
            _, body, _ = self.guard.read(kind, payload)
            asked = decode(kind, body)
            if isinstance(asked, FilterListRequest) and asked.core == self._core:
                self._asked.set()

    async def _hand_out(self):
        while True:
            await self._asked.wait()
            for page in self._pages:
                await until(lambda p=page: self.say(p), "there is room for a page")
                await asyncio.sleep(0)
            self._asked.clear()


@pytest.mark.parametrize("core", [9, 2], ids=["announced", "as a child"])
@pytest.mark.full
async def test_filters_without_end_hold_nobody_up(plain, office, core):
    brokers, agents = await line_of_three(plain, office)
    for agent, neighbour in ((agents[0], 2), (agents[2], 2)):
        await eventually(agent, linked(neighbour), "nothing is in doubt")
    own = await plain.broker()
    member = Greedy(9, office, own=own, victim=brokers[1], neighbour=2, core=core)
    stream = traffic(brokers[0], brokers[2], rate_hz=50)
    async with linked_member(member, agents[1]), stream as (publisher, subscriber):
        epoch = (await agents[1].status())["epoch"]

        async with undisturbed("15 filters without end", publisher, subscriber, processes=agents):
            greed = asyncio.create_task(member.want(epoch))
            await eventually(
                agents[1], lambda s: s["meshes_total"] > FILTERS, "it has all", deadline_s=ENOUGH_S
            )
            greed.cancel()
