"""Clients of a gateway that reconnect never: what they see is what the gateway lets them see.

They are of paho, by aiomqtt, which shares no code with the gateway.
"""

import asyncio
import contextlib
from collections import Counter
from functools import partial

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.real.polling import until, until_none

V311, V5 = aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5


class Noting(asyncio.Queue[aiomqtt.Message]):
    """Where aiomqtt puts what came: noted at once.

    Its iterator takes some turns of the loop for each, and on a busy machine never catches up.
    """

    def __init__(self, note, maxsize):
        super().__init__(maxsize)
        self._note = note

    def _put(self, message):
        self._note(message)


class GatewayClient:
    """Subscribes to some filters, publishes numbered payloads, and notes what came.

    Attributes:
        published: How many payloads it has given to its library.
        acknowledged: Those of them it has the PUBACK of, in order.
        came: How often each payload came, and when last.
        error: Why its connection ended, if it did.
    """

    def __init__(self, port, client_id, *, version=V311, persistent=False, subscribes=(), qos=1):
        self.client_id = client_id
        self.published = 0
        self.acknowledged = []
        self.came = Counter()
        self.order = []
        self.at_s = []
        self.error = None
        self._subscribes = subscribes
        self._qos = qos
        more = {}
        if version is V5:
            more = {"clean_start": not persistent}
            if persistent:
                properties = Properties(PacketTypes.CONNECT)
                properties.SessionExpiryInterval = 3600
                more["properties"] = properties
        else:
            more = {"clean_session": not persistent}
        self.client = aiomqtt.Client(
            "127.0.0.1",
            port,
            identifier=client_id,
            protocol=version,
            timeout=120,
            queue_type=partial(Noting, self._note),
            **more,
        )
        self.client.pending_calls_threshold = 10_000  # each warning would be logged
        self._watching = None

    async def __aenter__(self):
        await self.client.__aenter__()
        for filter_ in self._subscribes:
            await self.client.subscribe(filter_, qos=self._qos)
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *error):
        self._watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._watching
        with contextlib.suppress(aiomqtt.MqttError):
            await self.client.__aexit__(None, None, None)

    def _note(self, message):
        payload = message.payload.decode()
        self.came[payload] += 1
        self.order.append(payload)
        self.at_s.append(asyncio.get_running_loop().time())

    async def _watch(self):
        try:
            async for _ in self.client.messages:
                raise AssertionError("what comes is noted, not read")
        except aiomqtt.MqttError as error:
            self.error = error

    async def publish(self, topic, *, rate_hz, stop):
        """Publish ``<client id>:<number>`` until ``stop`` is set; each waits for nobody."""
        loop, tasks = asyncio.get_running_loop(), set()
        due_s = loop.time()
        while not stop.is_set():
            payload = f"{self.client_id}:{self.published}"
            task = asyncio.create_task(self._one(topic, payload, self._qos))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            self.published += 1
            due_s = max(due_s + 1 / rate_hz, loop.time())  # who was kept waiting does not hurry
            await asyncio.sleep(max(0.0, due_s - loop.time()))
        await asyncio.gather(*tasks)

    async def _one(self, topic, payload, qos):
        try:
            await self.client.publish(topic, payload, qos=qos)
        except aiomqtt.MqttError as error:
            self.error = error
        else:
            self.acknowledged.append(payload)


async def heard(pairs):
    """Wait until each reader of ``pairs`` hears its writer from now on.

    Returns:
        By writer, the first number that all its readers must get: their interest has spread.
    """
    pairs = list(pairs)
    before = {writer.client_id: writer.published for _, writer in pairs}

    def hears(reader, writer):
        name = writer.client_id
        return any(f"{name}:{n}" in reader.came for n in range(before[name], writer.published))

    await until(lambda: all(hears(*pair) for pair in pairs), "everybody is heard")
    return {writer.client_id: writer.published for _, writer in pairs}


@contextlib.asynccontextmanager
async def flowing(pairs, topics, *, rate_hz, first=50, from_first=False):
    """Each writer publishes on its topic; begins when over ``first`` more came to each reader.

    Each number counts when all are heard, or ``from_first``: whose SUBACK came is known everywhere.

    Args:
        pairs: Readers, each with a writer that it listens to.
        topics: By writer.

    Yields:
        What stops them, waits until each reader has what brokers acknowledged to its writers, and
        sees that nobody's connection ended.
    """
    pairs, stop = list(pairs), asyncio.Event()
    readers = dict.fromkeys(reader for reader, _ in pairs)
    clients = [*dict.fromkeys([*readers, *topics])]
    async with contextlib.AsyncExitStack() as stack:
        for client in clients:
            await stack.enter_async_context(client)
        flows = [
            asyncio.create_task(writer.publish(topic, rate_hz=rate_hz, stop=stop))
            for writer, topic in topics.items()
        ]
        since = await heard(pairs)
        await grow(*(reader.came for reader in readers), by=first)
        if from_first:
            since = dict.fromkeys(since, 0)

        def missed():
            return [
                (reader.client_id, payload)
                for reader, writer in pairs
                for payload in writer.acknowledged[since[writer.client_id] :]
                if payload not in reader.came
            ]

        async def settled():
            stop.set()
            await asyncio.gather(*flows)
            await until_none(missed, "of what is acknowledged is missed", poll_s=0.5)
            assert [(c.client_id, c.error) for c in clients if c.error] == []

        yield settled


async def grow(*notes, by):
    """Wait until each of what clients noted has more than ``by`` entries more than now."""
    before = [len(each) for each in notes]
    await until(
        lambda: all(len(n) > was + by for n, was in zip(notes, before, strict=True)),
        "publications flow again",
    )
