"""Plans that somebody writes by hand, and how they come to a broker."""

import time

import aiomqtt

from federator.protocol.messages.json_codec import encode
from federator.protocol.messages.steering import STEERING_VERSION, Plan
from federator.protocol.messages.topics import plan_topic


def plan(
    id_, *trees, federation="fed", steerer="hand", since_ms=1, number=1, valid_ms=60_000, wrong_ms=0
):
    """A plan of now for the broker ``id_``, as it is said by one whose clock is so wrong."""
    told = Plan(
        STEERING_VERSION, federation, id_, steerer, since_ms=since_ms, number=number,
        made_ms=time.time_ns() // 1_000_000 + wrong_ms, valid_ms=valid_ms, trees=trees,
    )  # fmt: skip
    return encode(told)


async def retain(broker, payload, federation="fed"):
    """Have ``broker`` retain it as its plan."""
    async with aiomqtt.Client(broker.host, broker.port) as client:
        await client.publish(plan_topic(federation), payload, qos=1, retain=True)
