"""How much does the broker keep for a client that is slow? Tried, as a broker does not tell.

Mosquitto drops what is beyond ``max_queued_messages`` for one client, a thousand by default: log
lines, when somebody subscribes thousands of filters at once, and publications, after a cut or while
an agent is away. So we are a client that acknowledges nothing while another one publishes.

Source: mosquitto.conf(5), ``max_queued_messages``.
"""

import asyncio
from typing import Final

import mqtt5

from federator.config.brokers import BrokerAddress
from federator.runtime.mqtt.probe import BrokerProbe
from federator.runtime.mqtt.secret_names import secret_name

PUBLISHED: Final = 2_000
"""Twice what a broker keeps by default."""

SILENCE_S: Final = 1.0


async def kept_for_the_slow(broker: BrokerAddress, topic: str, *, name: str) -> int:
    """How many of ``PUBLISHED`` publications came in the end.

    Args:
        topic: On which to publish them.
        name: Ours, for people who read the broker's log.

    Raises:
        LinkError: The broker cannot be reached.
    """
    slow_name, speaker_name = (secret_name(f"{name}-{role}") for role in ("slow", "speaker"))
    async with (
        BrokerProbe(broker, client_id=slow_name) as slow,
        BrokerProbe(broker, client_id=speaker_name) as speaker,
    ):
        await slow.subscribe(topic, qos=mqtt5.QoS.AT_LEAST_ONCE)
        for number in range(PUBLISHED):
            await speaker.publish(topic, b"%d" % number)
        kept = 0
        while kept < PUBLISHED:
            try:
                async with asyncio.timeout(SILENCE_S):
                    slow.acknowledge(await slow.next_message())
            except TimeoutError:
                break
            kept += 1
    return kept
