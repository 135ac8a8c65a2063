"""What an agent answers on its broker to whoever asks for a page, and to whoever floods it."""

import asyncio
import contextlib
import json

from federator.config.brokers import BrokerAddress
from federator.protocol.messages.json_codec import decode, encode
from federator.protocol.messages.operators import PageAnswer, PageQuestion
from federator.protocol.trust.words import at
from federator.runtime.mqtt.probe import BrokerProbe
from federator.runtime.observability.pages import QUESTIONS_PER_S, SEARCHES_PER_S
from tests.real.agent_log import named
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.polling import until
from tests.real.steering.test_signed_plans import words_of
from tests.real.trust.test_signed import Office
from tests.real.undisturbed import tell

ASKED, ANSWERED = "$fed/fed/page", "$fed/fed/paged/me"
FLOOD = 500


async def pair(plain):
    brokers = [await plain.broker() for _ in range(2)]
    await plain.agent(1, brokers[0], broker={"name": "gate"})
    await plain.agent(2, brokers[1], brokers[0].url)
    await eventually(plain.agents[0], linked(2), "linked")
    return brokers


def probing(broker):

    return BrokerProbe(BrokerAddress(url=broker.url), client_id="asker")


async def answer_to(probe, number, page, about="", *, sign=lambda said: said):
    question = PageQuestion(token="me", number=number, page=page, about=about)
    await probe.publish(ASKED, sign(encode(question)))
    async with asyncio.timeout(30):
        while True:
            told = decode(PageAnswer, (await probe.next_message()).payload)
            if told.number == number:
                return told


async def test_pages_say_what_the_pages_over_http_say(plain):
    brokers = await pair(plain)
    reader = Subscriber(brokers[0].port, "a/+", client_id="Reader-1")
    async with running(reader), probing(brokers[0]) as probe:
        await probe.subscribe(ANSWERED)
        await eventually(plain.agents[0], lambda s: s["meshes"], "it is known")
        status = await plain.agents[0].status()
        live = (await answer_to(probe, 1, "live")).body
        mesh = (await answer_to(probe, 2, "mesh", "a/+")).body
        wrong = await answer_to(probe, 3, "explain", "a/#")
        over_http = explained = {}
        async with asyncio.timeout(30):  # the mesh is young: between two questions it may change
            while not explained or explained["why"] != over_http["why"]:
                explained = (await answer_to(probe, 4, "explain", "a/b")).body
                over_http = await plain.agents[0].page("/explain?topic=a/b")

    assert (live["name"], live["ready"], live["epoch"]) == ("gate", True, status["epoch"])
    assert [(each["neighbour"], each["state"]) for each in live["links"]] == [(2, "up")]
    assert explained["topic"] == over_http["topic"] == "a/b"
    assert (mesh["core"], mesh["local"]) == (1, True)
    assert (wrong.body, bool(wrong.wrong)) == ({}, True)


async def test_a_search_finds_own_clients_by_part_of_a_name_and_by_topic(plain):
    brokers = await pair(plain)
    reader, row = Subscriber(brokers[0].port, "a/+", client_id="Reader-1"), [("Reader-1", "a/+")]
    async with running(reader), probing(brokers[0]) as probe:
        await probe.subscribe(ANSWERED)
        for text, wanted in (("reader", row), ("a/b", row), ("nobody", [])):

            async def found(text=text, wanted=wanted):
                rows = (await answer_to(probe, 1, "search", text)).body["rows"]
                await asyncio.sleep(1 / SEARCHES_PER_S)
                return [(each["client"], each["topic"]) for each in rows] == wanted

            await until(found, text)


async def test_a_flood_of_questions_is_bounded_and_costs_no_publication(plain):
    brokers = await pair(plain)
    reader = Subscriber(brokers[1].port, "a/#", client_id="reader", qos=1)
    publisher = Publisher(brokers[0].port, "a/b", client_id="publisher", qos=1)
    async with running(reader, publisher), probing(brokers[0]) as probe:
        await gets_through(publisher, reader)
        await probe.subscribe(ANSWERED)
        before = asyncio.get_running_loop().time()
        question = encode(PageQuestion(token="me", number=7, page="live"))
        for _ in range(FLOOD):
            await probe.publish(ASKED, question)
        for payload in (b"", b"{}", b"[" * 100_000, json.dumps({"page": "live"}).encode()):
            await probe.publish(ASKED, payload)
        spent_s = asyncio.get_running_loop().time() - before
        await gets_through(publisher, reader)
        await asyncio.sleep(1)
        answers = probe.messages.qsize()

    assert 1 <= answers <= QUESTIONS_PER_S * (spent_s + 3)
    assert len(named(plain.agents[0], "page.malformed")) == 1


async def test_who_has_no_key_takes_no_room_from_an_operator(plain, tmp_path):
    """On a broker without an ACL: unsigned, signed in another role, and recorded questions."""
    office = Office(tmp_path / "office")
    broker = await plain.broker()
    await plain.agent(1, broker, security="signed", more=office.section(1))
    operator, gateway = (words_of(office, role, "ann") for role in ("operator", "gateway"))

    def sign(said, words=operator):
        return words.sign(ASKED, said, to=at(1))

    answered = 0
    async with probing(broker) as probe:
        await probe.subscribe(ANSWERED)
        recorded = sign(encode(PageQuestion(token="me", number=99, page="live")))
        for number in range(1, 6):
            unsigned = encode(PageQuestion(token="me", number=1_000, page="live"))
            for _ in range(5 * QUESTIONS_PER_S):
                for junk in (unsigned, sign(unsigned, gateway), recorded):
                    await probe.publish(ASKED, junk)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10):
                    answered += bool(await answer_to(probe, number, "live", sign=sign))

    tell(row="junk on the topic of pages", sent=5, lost=5 - answered)
    assert answered == 5
