"""Marks that come with data, and what they let happen once the custody log has all before them."""

import asyncio

from mqtt5 import PublishPacket, QoS

from federator.protocol.messages.gateways import Mark, Taken
from federator.protocol.messages.json_codec import decode, encode
from federator.runtime.custody import gateway_marks
from federator.runtime.custody.gateway_marks import GatewayMarks


class Link:
    """The control connection: what is published there."""

    def __init__(self):
        self.published = []

    def publish(self, topic, payload, *, qos=0):
        self.published.append((topic, payload))
        return True


def comes(marks, *payloads):
    packets = [
        PublishPacket("$fed/fed/mark", payload, qos=QoS.AT_LEAST_ONCE, packet_id=n)
        for n, payload in enumerate(payloads, 1)
    ]
    marks.note([(packet, 0, 0) for packet in packets])


def marks_of(link, *, refused=()):
    """The marks at an agent that puts a proof behind what it signs."""
    return GatewayMarks(
        "fed",
        link,
        is_gateways=lambda packet, name: name not in refused,
        sign=lambda topic, payload: payload[:-1] + b',"proof":"ours"}',
    )


def waiting(link):
    marks = marks_of(link)
    return marks, asyncio.create_task(marks.caught_up())


async def test_we_have_caught_up_when_our_own_mark_is_acknowledged_and_nobody_is_told():
    link = Link()
    marks, task = waiting(link)
    await asyncio.sleep(0)
    ((topic, payload),) = link.published
    assert topic == "$fed/fed/mark"

    marks.on_acknowledged()
    comes(marks, payload)
    await asyncio.sleep(0)
    assert not task.done()
    marks.on_acknowledged()
    await task

    assert len(link.published) == 1


async def test_gateways_are_answered_beside_our_own_mark():
    link = Link()
    marks, task = waiting(link)
    await asyncio.sleep(0)
    comes(marks, encode(Mark("g", 7)), link.published[0][1], b"no mark", encode(Mark("g", 8)))

    marks.on_acknowledged()
    await task

    assert [(at, decode(Taken, said)) for at, said in link.published[1:]] == [
        ("$fed/fed/taken/g", Taken(8))
    ]
    assert marks.malformed == 1


async def test_a_mark_of_an_earlier_life_says_nothing_about_this_one():
    former, link = Link(), Link()
    _, killed = waiting(former)
    await asyncio.sleep(0.001)
    killed.cancel()
    marks, task = waiting(link)
    await asyncio.sleep(0)

    comes(marks, former.published[0][1])
    marks.on_acknowledged()
    await asyncio.sleep(0)

    assert not task.done()
    task.cancel()


async def test_a_mark_that_never_comes_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(gateway_marks, "CAUGHT_UP_SECONDS_MAX", 0.01)

    await marks_of(Link()).caught_up()


def test_a_mark_that_is_not_its_gateways_is_not_answered_and_a_signed_one_is_answered_signed():
    link = Link()
    marks = marks_of(link, refused=["forged"])
    signed = encode(Mark("g", 7))[:-1] + b',"proof":"g\'s"}'

    comes(marks, encode(Mark("forged", 9)), signed, encode(Mark("h", 8)))
    marks.on_acknowledged()

    assert [topic for topic, _ in link.published] == ["$fed/fed/taken/g", "$fed/fed/taken/h"]
    assert [b"ours" in payload for _, payload in link.published] == [True, False]


def test_in_one_window_only_so_many_proofs_are_judged(monkeypatch):
    now_ms = 0
    monkeypatch.setattr(gateway_marks, "monotonic_ms", lambda: now_ms)
    judged = []
    marks = marks_of(Link())
    marks.is_gateways = lambda packet, name: judged.append(name)

    signed_mark = encode(Mark("g", 1))[:-1] + b',"proof":"no"}'

    for _ in range(4):  # reads
        comes(marks, *[signed_mark] * 100)

    assert len(judged) == gateway_marks.JUDGED_MAX
    now_ms += gateway_marks.WINDOW_MS
    comes(marks, encode(Mark("h", 1)), signed_mark)
    assert judged[gateway_marks.JUDGED_MAX :] == ["h", "g"]
