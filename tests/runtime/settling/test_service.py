"""Answers to gateways: many of one turn share a signature."""

import asyncio
from types import SimpleNamespace

from federator.protocol.messages.gateways import SETTLED_ALSO_MAX, Settled
from federator.protocol.messages.json_codec import decode
from federator.protocol.settling.waves import Question
from federator.runtime.settling.service import SettlingService

COUNT = 3_000


class Link:
    """The control connection: what is published there."""

    def __init__(self):
        self.published = []

    def publish(self, topic, payload, *, urgent):
        self.published.append((topic, decode(Settled, payload)))
        return True


def service_of(link, signed):
    def sign(topic, payload):
        signed.append(topic)
        return payload

    nothing = dict.fromkeys(("policy", "has_own_members", "covers", "tell", "is_gateways"))
    return SettlingService(
        settings=SimpleNamespace(federation="fed", broker_id=1),
        node=SimpleNamespace(links=SimpleNamespace(epoch=1)),
        link=link,
        sign=sign,
        **nothing,
    )


async def test_what_was_asked_signed_is_answered_so_and_few_signatures_answer_many():
    link, signed = Link(), []
    service = service_of(link, signed)

    for token in range(COUNT):
        service.answer(Question("g", token, (), 0, signed=True), known=True)
    service.answer(Question("g", COUNT, (), 0, signed=True), known=False)
    await asyncio.sleep(0)

    told = [each for _, each in link.published]
    assert [token for each in told for token in (each.token, *each.also)] == [*range(COUNT + 1)]
    assert [each.known for each in told][-2:] == [True, False]
    assert signed == ["$fed/fed/settled/g"] * (-(-COUNT // (SETTLED_ALSO_MAX + 1)) + 1)


async def test_who_asks_unsigned_is_answered_one_by_one_and_unsigned():
    link, signed = Link(), []
    service = service_of(link, signed)

    for token in (7, 8):
        service.answer(Question("g", token, (), 0), known=True)
    await asyncio.sleep(0)

    assert link.published == [("$fed/fed/settled/g", Settled(token, True)) for token in (7, 8)]
    assert signed == []
