"""Tests whether this broker can take part, by doing once what an agent does all day.

A configuration file shows the intention; only the broker shows its behaviour. So the doctor logs in
as the agent would, subscribes to the log topics, and then checks whether its own next SUBSCRIBE,
UNSUBSCRIBE and connect show up there; it publishes under ``$fed`` and checks whether that comes
back. ``diagnosis`` judges the results.

Source: docs/ARCHITECTURE.md, "What we ask of a broker".
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

import mqtt5

from federator.config.settings import Settings
from federator.errors import ConfigError, LinkError
from federator.protocol.discovery import VERSION_TOPIC
from federator.protocol.discovery.log_lines import NOTICE_TOPIC
from federator.protocol.messages.topics import (
    DOCTORS_WORD,
    cover_topic,
    data_topic,
    delivered_topic,
    doctor_topic,
    retained_mark_topic,
)
from federator.runtime.doctor.diagnosis import (
    CONFIG_EXIT_CODE,
    PUBLISHED,
    Facts,
    TopicAccess,
    tried_lengths,
)
from federator.runtime.doctor.log_kinds import LOG_LINES
from federator.runtime.doctor.neighbours import try_neighbours
from federator.runtime.doctor.strangers import who_may_speak
from federator.runtime.mqtt.failures import one_id
from federator.runtime.mqtt.probe import BrokerProbe, plain
from federator.runtime.mqtt.secret_names import secret_name

COUNT = "$SYS/broker/subscriptions/count"
CLIENTS_TOPIC = "federator-doctor"
"""A level below it stands for the topics of clients."""

LINE_SECONDS_MAX = 2.0
"""How long the broker may take to publish a line: it does so within its main loop."""

SYSTEM_SECONDS_MAX = 12.0
"""A little more than Mosquitto's default ``sys_interval`` of 10 s."""

LONG_SECONDS_MAX = 10.0
SILENCE_SECONDS = 1.0


@dataclass(slots=True)
class Received:
    """What the broker sent, compared with what we did."""

    client_id: str
    guest_id: str
    topics: tuple[str, str]
    version: str | None = None
    logs: set[str] = field(default_factory=set)
    system_seen: bool = False
    returned: set[str] = field(default_factory=set)

    def note(self, packet: mqtt5.PublishPacket) -> None:
        """Credit one publication to one of our actions; lines about others are no proof."""
        topic, text = packet.topic, packet.payload.decode("utf-8", errors="replace")
        if topic == VERSION_TOPIC:
            self.version = text
        elif topic == COUNT:
            self.system_seen = True
        elif topic == NOTICE_TOPIC:
            if self.guest_id in text:
                self.logs.add(LOG_LINES[topic])
        elif topic in LOG_LINES:
            if f"{self.client_id} " in text and self.topics[0] in text:
                self.logs.add(LOG_LINES[topic])
        else:
            self.returned.add(topic)

    async def listen(
        self, probe: BrokerProbe, seconds_max: float, satisfied: Callable[[], bool]
    ) -> None:
        """Note publications until ``satisfied``, or for ``seconds_max``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while not satisfied():
                    self.note(await probe.next_message())


async def _kept_for_the_slow(settings: Settings, topic: str) -> int:
    """How many of ``PUBLISHED`` publications come in the end, when nothing is acknowledged.

    Mosquitto drops what exceeds ``max_queued_messages`` for one client, a thousand by default: log
    lines, when a client subscribes thousands of filters at once, and publications, after a cut or
    while an agent is away.

    Source: mosquitto.conf(5), ``max_queued_messages``.

    Raises:
        LinkError: The broker cannot be reached.
    """
    broker = settings.broker
    slow_name, name = (secret_name(f"{broker.id}-doctor-{role}") for role in ("slow", "speaker"))
    async with (
        BrokerProbe(broker, client_id=slow_name) as slow,
        BrokerProbe(broker, client_id=name) as speaker,
    ):
        await slow.subscribe(topic, qos=mqtt5.QoS.AT_LEAST_ONCE)
        for number in range(PUBLISHED):
            await speaker.publish(topic, b"%d" % number)
        kept = 0
        while kept < PUBLISHED:
            try:
                async with asyncio.timeout(SILENCE_SECONDS):
                    slow.acknowledge(await slow.next_message())
            except TimeoutError:
                break
            kept += 1
    return kept


async def _stands_beside_another(probe: BrokerProbe, settings: Settings) -> None:
    """Raise ``ConfigError`` if the broker ended ``probe`` when we connected a second time."""
    broker = settings.broker
    try:
        await probe.publish(doctor_topic(settings.federation, secrets.token_hex(4)), DOCTORS_WORD)
    except LinkError as error:
        if broker.username is None:
            raise
        text = f"{broker.reached_at}: {one_id(broker.username)}"
        raise ConfigError(text, exit_code=CONFIG_EXIT_CODE) from error


async def _longest_payload(settings: Settings, topic: str) -> int:
    """The first of ``tried_lengths`` that comes back, 0 if none: they stay in order.

    Mosquitto does not announce its longest payload (``message_size_limit``); longer ones of QoS 0
    it drops silently.

    Source: mosquitto.conf(5), ``message_size_limit``.

    Raises:
        LinkError: The broker cannot be reached.
    """
    name = secret_name(f"{settings.broker.id}-doctor-long")
    async with BrokerProbe(settings.broker, client_id=name) as probe:
        await probe.subscribe(topic)
        for length in tried_lengths(settings, probe.connack):
            probe.publish_loosely(topic, bytes(length))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONG_SECONDS_MAX):
                return len((await probe.next_message()).payload)
    return 0


async def examine(
    settings: Settings,
    *,
    line_seconds_max: float = LINE_SECONDS_MAX,
    system_seconds_max: float = SYSTEM_SECONDS_MAX,
) -> Facts:
    """Run all tests; wait so long for lines of the broker's log, and for ``$SYS`` topics.

    Raises:
        LinkError: It cannot be reached; ``RefusedError`` when it refuses us.
        ConfigError: It ends a connection of ours when another one comes.
    """
    nonce, federation = secrets.token_hex(4), settings.federation
    name = secret_name(f"{settings.broker.id}-doctor")
    control, data = doctor_topic(federation, nonce), f"{CLIENTS_TOPIC}/{nonce}"
    answers: dict[str, str] = {}
    async with BrokerProbe(settings.broker, client_id=name) as probe:
        await probe.subscribe(*LOG_LINES, VERSION_TOPIC, COUNT)
        # An agent may use the topics of the data connection: it ignores our test payload.
        for topics in (
            (control, data),
            (data_topic(federation),),
            (cover_topic(federation),),
            (retained_mark_topic(federation),),
            (delivered_topic(federation, settings.broker_id),),
        ):
            await probe.subscribe(*topics)
            for topic in topics:
                answers[topic] = plain(await probe.publish(topic, DOCTORS_WORD))
            await probe.unsubscribe(*topics)
        guest = f"{name}-guest"
        async with BrokerProbe(settings.broker, client_id=guest):
            await _stands_beside_another(probe, settings)
        received = Received(client_id=name, guest_id=guest, topics=(control, data))
        await received.listen(probe, line_seconds_max, lambda: len(received.logs) == len(LOG_LINES))
        await received.listen(probe, system_seconds_max, lambda: received.system_seen)
        on_control, on_clients, *on_data_connection = (
            TopicAccess(topic, answer, topic in received.returned)
            for topic, answer in answers.items()
        )
        return Facts(
            version=received.version,
            connack=probe.connack,
            logs=received.logs,
            control=on_control,
            clients=on_clients,
            data_connection=on_data_connection,
            system_seen=received.system_seen,
            speakers=await who_may_speak(
                settings.broker, federation=federation, name=str(settings.broker.id)
            ),
            payload=await _longest_payload(settings, control) if on_control.returned else None,
            kept=await _kept_for_the_slow(settings, control) if on_control.returned else None,
            neighbours=await try_neighbours(settings),
        )
