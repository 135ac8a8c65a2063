"""In a federation with keys only a steerer's signed plan is followed, and only where it is for."""

import contextlib

import aiomqtt

from federator.config.security import role_keys
from federator.errors import LinkError
from federator.protocol.messages.steering import tree_of
from federator.protocol.messages.topics import plan_topic
from federator.protocol.trust.words import NOBODY, at
from federator.runtime.trust.words import SignedWords, vouch_by
from tests.real.plain_agents import Plain, eventually, linked
from tests.real.polling import until
from tests.real.steering.by_hand import plan, retain
from tests.real.trust.test_signed import Office, keys, refusals
from tests.real.undisturbed import tell

TOPIC = plan_topic("fed")


def words_of(office, role, name):
    path = office.folder / f"{role}-{name}.key"
    keys("issue", "--dir", office.folder, "--role", role, "--name", name, "--out", path)
    return SignedWords(None, vouch=vouch_by(role_keys(path, role, "key")))


def one(number, *, broker=1, steerer="central"):
    return plan(broker, tree_of(1, ["x"], {2: 1}), number=number, steerer=steerer)


async def test_only_who_may_steer_is_followed_and_only_where_it_says(tmp_path):
    office = Office(tmp_path / "office")
    async with Plain(tmp_path) as plain:
        brokers = [await plain.broker(), await plain.broker()]
        first = await plain.agent(1, brokers[0], security="signed", more=office.section(1))
        more = office.section(2)
        await plain.agent(2, brokers[1], brokers[0].url, security="signed", more=more)
        await eventually(first, linked(2), "linked")
        central = words_of(office, "steerer", "central")
        operator = words_of(office, "operator", "central")
        signed = central.sign(TOPIC, one(1, broker=2), to=at(2))
        for payload, why in (
            (one(1), "steerer central without its signature"),
            (operator.sign(TOPIC, one(1), to=at(1)), "operator"),
            (central.sign(TOPIC, one(1), to=NOBODY), "is for another"),
            (signed, "is for another"),
            (central.sign(TOPIC, one(1, steerer="other"), to=at(1)), "in the name of other"),
            (central.sign(TOPIC, one(1), to=at(1)).replace(b'"x"', b'"y"'), "is wrong"),
        ):
            await retain(brokers[0], payload)
            await until(lambda w=why: refusals(first, w), f"{why}: {refusals(first, '')}")
        assert not any("steer.followed" in line for line in first.log_lines())

        await retain(brokers[0], central.sign(TOPIC, one(2), to=at(1)))
        await until(
            lambda: any("steer.followed" in line for line in first.log_lines()), "it is followed"
        )
        await retain(brokers[0], b"")  # anybody may: the lease holds
        assert not any("steer.ended" in line for line in first.log_lines())


PLANS = 10


async def test_junk_before_and_behind_a_plan_does_not_take_its_place(tmp_path):
    """A client without a key writes on the topic as fast as it can, on a broker without an ACL."""
    office = Office(tmp_path / "office")
    async with Plain(tmp_path) as plain:
        broker = await plain.broker()
        agent = await plain.agent(1, broker, security="signed", more=office.section(1))
        await eventually(agent, linked(), "ready, so subscribed to plans")
        central = words_of(office, "steerer", "central")
        recorded = central.sign(TOPIC, one(1), to=at(1))
        junk = [b"junk", b"{}", one(99), one(99, steerer="nobody"), recorded]
        junk += [central.sign(TOPIC, one(99), to=at(2)), recorded.replace(b'"x"', b'"y"')]
        followed = []
        async with aiomqtt.Client(broker.host, broker.port) as client:
            for number in range(1, PLANS + 1):
                for each in (*junk, central.sign(TOPIC, one(number), to=at(1)), *junk):
                    await client.publish(TOPIC, each, qos=1)
                with contextlib.suppress(LinkError):
                    await eventually(agent, follows(number), f"plan {number}", deadline_s=10)
                    followed.append(number)

    tell(row="junk on the topic of plans", sent=PLANS, lost=PLANS - len(followed))
    assert followed == list(range(1, PLANS + 1))


def follows(number):
    return lambda status: status["steering"]["number"] == number
