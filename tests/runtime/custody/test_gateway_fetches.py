"""Gateways ask an agent what their clients missed: who is answered, with what, in which pieces."""

import asyncio

import pytest
from mqtt5 import PublishPacket, QoS

from federator.protocol.messages.gateways import Fetch, Fetched
from federator.protocol.messages.json_codec import decode, encode
from federator.runtime.custody import gateway_fetches
from federator.runtime.custody.gateway_fetches import LOOK_BACK_MS_MAX, GatewayFetches
from federator.runtime.process.clocks import wall_clock_us
from tests.protocol.custody.frames import placed
from tests.real.polling import until


def publication(topic, payload):
    return PublishPacket(topic, payload, qos=QoS.AT_LEAST_ONCE, packet_id=7).write()


def frame(number, body):
    return placed(2, 1, number, {b"12345678": 0}, made_us=1, body=body).frame


class Agent:
    """What the questions of one agent lead to: what it has, and what it says."""

    def __init__(self, *, signed_only=False, has_room=True, own=()):
        self.published = []
        self.looked = []
        self.tells = []
        self.fetches = GatewayFetches(
            federation="fed",
            link=self,
            is_gateways=lambda packet, name: name != "liar",
            sign=lambda topic, payload: payload[:-1] + b',"proof":"ours"}',
            signed_only=signed_only,
            in_federation=lambda filter: () if filter == "home/#" else (filter,),
            names_here=lambda run: run,
            caught_up=lambda: asyncio.sleep(0),
            retrieve=self.retrieve,
        )
        self._own = own if has_room else None

    def retrieve(self, filters, since_us, tell):
        self.looked.append((filters, since_us))
        self.tells.append(tell)
        return self._own

    def publish(self, topic, payload):
        self.published.append((topic, payload))

    def asked(self, question, *, proof=b""):
        payload = encode(question)
        if proof:
            payload = payload[:-1] + b',"proof":"' + proof + b'"}'
        self.fetches.on_question(PublishPacket("$fed/fed/fetch", payload))

    @property
    def told(self):
        """The payloads in each answer."""
        pages = [decode(Fetched, payload) for _, payload in self.published]
        return [[packet[-1:] for packet in page.packets] for page in pages]


async def test_what_others_made_and_what_we_made_is_told_under_the_questions_number(monkeypatch):
    monkeypatch.setattr(gateway_fetches, "PAGE_DELAY_S", 0.3)  # one page, on a busy machine, too
    agent = Agent(own=[frame(1, publication("a", b"1"))])
    agent.asked(Fetch("gate", 9, ("a", "home/#"), 500))

    agent.tells[0](frame(4, publication("a", b"4")))
    await until(lambda: agent.published, "it is told")

    ((filters, since_us),) = agent.looked
    assert filters == ["a"], "what stays at home is nobody's business"
    assert 500_000 <= wall_clock_us() - since_us < 60_000_000
    ((topic, payload),) = agent.published
    assert (topic, decode(Fetched, payload).number) == ("$fed/fed/fetched/gate", 9)
    assert agent.told == [[b"4", b"1"]]


async def test_an_answer_comes_in_pages_and_has_an_end(monkeypatch):
    monkeypatch.setattr(gateway_fetches, "PAGE_BYTES_MAX", 20)
    monkeypatch.setattr(gateway_fetches, "ANSWER_BYTES_MAX", 45)
    agent = Agent()
    agent.asked(Fetch("gate", 9, ("a",), 500))
    for number in range(9):
        agent.tells[0](frame(number, publication("a", b"%d" % number)))
    await until(lambda: sum(map(len, agent.told)) >= 4, "it is told")

    size = len(publication("a", b"1"))
    assert agent.told == [[b"0", b"1"], [b"2", b"3"]]
    assert 2 * size <= 20 < 3 * size
    assert agent.fetches.refused > 0


@pytest.mark.parametrize(
    "question",
    [
        Fetch("liar", 1, ("a",), 1),
        Fetch("gate", 1, ("a/#/b",), 1),
        Fetch("gate", -1, ("a",), 1),
        Fetch("gate", 1, ("home/#",), 1),
    ],
)
async def test_nothing_is_looked_for_without_a_true_question(question):
    agent = Agent()

    agent.asked(question)

    assert not agent.looked


async def test_in_a_signed_federation_only_who_signs_is_answered_and_with_a_signature():
    agent = Agent(signed_only=True)
    agent.asked(Fetch("gate", 1, ("a",), 1))
    assert (agent.looked, agent.fetches.malformed) == ([], 1)

    agent.asked(Fetch("gate", 2, ("a",), 1), proof=b"theirs")
    agent.tells[0](frame(4, publication("a", b"4")))
    await until(lambda: agent.published, "it is told")

    assert agent.published[0][1].endswith(b',"proof":"ours"}')


async def test_proofs_without_end_are_not_judged():
    agent = Agent(signed_only=True)

    for number in range(3 * gateway_fetches.JUDGED_MAX):
        agent.asked(Fetch("gate", number, ("a",), 1), proof=b"theirs")

    assert len(agent.looked) <= 2 * gateway_fetches.JUDGED_MAX
    assert agent.fetches.refused


async def test_nobody_looks_back_for_ever_and_what_has_no_room_is_counted():
    agent = Agent(has_room=False)
    agent.asked(Fetch("gate", 1, ("a",), 10**12))

    ((_, since_us),) = agent.looked
    assert wall_clock_us() - since_us < (LOOK_BACK_MS_MAX + 60_000) * 1_000
    assert agent.fetches.refused == 1
