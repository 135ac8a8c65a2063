"""What gateways ask their brokers' agents, on brokers without an ACL: nobody else asks or answers.

The attacker may write and read all of ``$fed/#``. docs/security.md, "Roles".
"""

import asyncio
import re
from functools import partial
from itertools import chain

from federator.protocol.messages.gateways import Mark, Recall, Settle, Settled, Taken
from federator.protocol.messages.json_codec import decode, encode
from federator.protocol.trust.words import NOBODY, at
from tests.real.agent_log import named
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import eventually, gets_through
from tests.real.polling import until
from tests.real.trust.test_roles import Recorder, forgeries, gateway, pair
from tests.real.trust.test_signed import keys, refusals
from tests.real.trust.traffic import traffic
from tests.real.undisturbed import undisturbed

TAKEN, SETTLED = "taken/gate", "settled/gate"
M1 = Mark("gate", 1)
RECALL = Recall("gate", 1, ("#",), oldest_ms=60_000, newest_ms=0)


class Forger(Recorder):
    """Answers in an agent's place."""

    def said(self, kind):
        return [payload for topic, payload in self.heard if topic == f"$fed/fed/{kind}"]

    def numbers(self, kind, word):
        return [decode(word, payload) for payload in self.said(kind)]

    def answer_all(self):
        """Say yes to whatever the gateway has asked."""
        for mark in self.numbers("mark", Mark):
            self.say(TAKEN, encode(Taken(mark.number)))
        for question in self.numbers("settle", Settle):
            self.say(SETTLED, encode(Settled(question.token, known=True)))


async def test_nobody_answers_a_gateway_in_its_agents_place(plain, office, tmp_path):
    brokers, agents = await pair(plain, office)
    forger, elsewhere = (Forger(broker.port) for broker in brokers)
    async with gateway(tmp_path, office, brokers, "gate") as gate:
        client = Subscriber(gate.port, "a/#", client_id="sub", qos=1)
        late = Subscriber(gate.port, "late/#", client_id="late", qos=1)
        publisher = Publisher(gate.port, "a/b", client_id="pub", qos=1)

        async def told(what):
            return (await gate.status())["counters"][what]

        async def unsafe():
            return (await gate.status())["brokers"][0]["unsafe"]

        async with running(forger, elsewhere):
            await until(lambda: forger.link.subscribed and elsewhere.link.subscribed, "they hear")
            async with running(client, publisher):
                await gets_through(publisher, client)
                await until(lambda: forger.said(TAKEN), "custody is taken")
                assert (await told("settled"), await told("unsettled")) == (1, 0)

                old = forger.said(TAKEN)[0]
                mark = forger.said("mark")[-1]
                early = decode(Mark, mark).number + 10_000
                async with undisturbed("12 answers", publisher, client, processes=(*agents, gate)):
                    for kind, payload, why in (
                        (TAKEN, encode(Taken(early)), "agent 1 without its signature"),
                        (TAKEN, old, "a word of broker 1 came before"),
                    ):
                        await forger.say_until(kind, payload, lambda w=why: refusals(gate, w))
                    for forged, where, agent, why in (
                        (
                            encode(Mark("gate", early + 1)),
                            forger,
                            agents[0],
                            "without its signature",
                        ),
                        (mark, elsewhere, agents[1], "is for another"),
                    ):
                        where.link.publish("$fed/fed/mark", forged, qos=1)
                        await until(lambda a=agent, w=why: refusals(a, w), "no gateway's mark")
                    await gets_through(publisher, client)
                assert early + 1 not in [each.number for each in forger.numbers(TAKEN, Taken)]

                agents[0].pause()
                try:
                    asked, sent = len(forger.said("settle")), publisher.sent
                    async with running(late):
                        await until(lambda: len(forger.said("settle")) > asked, "it is asked")
                        await until(lambda: publisher.sent > sent + 100, "much is unsafe")
                        publisher.pause()
                        forger.answer_all()
                        await until(lambda: late.link.subscribed, "its time is over")
                        counted, left = await told("settled"), await unsafe()
                finally:
                    agents[0].resume()
                assert counted == 1
                assert left >= 100
                publisher.resume()
                await gets_through(publisher, client)
                publisher.pause()
                while await unsafe():
                    forger.answer_all()
                assert set(range(min(client.came), publisher.sent)) == set(client.came)
    assert client.duplicates == 0


async def test_forged_answers_and_marks_without_end_hold_nobody_up(plain, office, tmp_path):
    brokers, agents = await pair(plain, office)
    forger = Forger(brokers[0].port)
    async with (
        gateway(tmp_path, office, brokers, "gate") as gate,
        traffic(gate, gate, forger) as (publisher, client),
    ):
        await until(lambda: forger.said(TAKEN), "custody is taken")
        taken, mark = forger.said(TAKEN)[0], forger.said("mark")[0]
        answers = chain(
            forgeries(TAKEN, Taken(1), taken, to=NOBODY),
            forgeries("recall", RECALL, mark, to=at(1)),
        )
        marks = forgeries("mark", M1, mark, to=at(1))
        floods = (
            ("12 forged taken, recall", gate, {"taken", "recall"}, answers),
            ("12 forged mark", agents[0], {"mark"}, marks),
        )
        for row, victim, kinds, flood in floods:
            watched = (*agents, gate)
            async with undisturbed(row, publisher, client, processes=watched):
                for topic, payload in flood:
                    qos = int("mark" in kinds)
                    said = partial(forger.link.publish, topic, payload, qos=qos)
                    await until(said, "there is room")
                    await asyncio.sleep(0)  # who measures beside it has its turn
                await until(
                    lambda v=victim, k=kinds: k <= {r["kind"] for r in refusals(v, "is wrong")},
                    "they are refused",
                )
                await gets_through(publisher, client)
        publisher.pause()

        async def safe():
            return not (await gate.status())["brokers"][0]["unsafe"]

        await until(safe, "custody of all is taken")


def serial(path):
    return re.search("serial ([0-9a-f]+)", keys("show", path)).group(1)


async def test_a_gateways_key_is_changed_and_anothers_taken_back_without_a_restart(
    plain, office, tmp_path
):
    brokers, agents = await pair(plain, office)
    async with (
        gateway(tmp_path, office, brokers, "gate") as gate,
        gateway(tmp_path, office, brokers, "other") as other,
    ):
        mine, theirs = (office.folder / f"gateway-{name}.key" for name in ("gate", "other"))
        old, new = serial(mine), tmp_path / "new.key"
        keys("issue", "--dir", office.folder, "--role", "gateway", "--name", "gate", "--out", new)
        new.replace(mine)
        await until(lambda: named(gate, "trust.certificate_changed"), "the new key is used")
        keys("revoke", "--dir", office.folder, old, serial(theirs))
        await until(lambda: named(gate, "trust.revocations"), "the list is read")
        await until(lambda: named(agents[0], "trust.revocations"), "by the agent, too")

        stranger = Subscriber(other.port, "b/#", client_id="stranger", qos=1)
        async with traffic(brokers[1], gate) as (publisher, client):
            await eventually(gate, lambda s: s["counters"]["settled"] == 1, "it is answered")
            async with running(stranger):
                await until(lambda: refusals(gate, "is revoked"), "its claim is not believed")
                await gets_through(publisher, client)
    assert not refusals(agents[0], "gateway gate")
    assert client.link.counters.attempts == 1
