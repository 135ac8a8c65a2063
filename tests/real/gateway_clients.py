"""Clients of a gateway that reconnect never: what they see is what the gateway lets them see.

They are of paho, by aiomqtt, which shares no code with the gateway.
"""

import asyncio
import contextlib
from collections import Counter

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.real.polling import until

V311, V5 = aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5


class GatewayClient:
    """Subscribes to some filters, publishes numbered payloads, and notes what came.

    Attributes:
        acknowledged: Payloads it published and has the PUBACK of.
        came: How often each payload came, and when last.
        error: Why its connection ended, if it did.
    """

    def __init__(self, port, client_id, *, version=V311, persistent=False, subscribes=(), qos=1):
        self.client_id = client_id
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
            "127.0.0.1", port, identifier=client_id, protocol=version, timeout=30, **more
        )
        self._reading = None

    async def __aenter__(self):
        await self.client.__aenter__()
        for filter_ in self._subscribes:
            await self.client.subscribe(filter_, qos=self._qos)
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *error):
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
        with contextlib.suppress(aiomqtt.MqttError):
            await self.client.__aexit__(None, None, None)

    async def _read(self):
        loop = asyncio.get_running_loop()
        try:
            async for message in self.client.messages:
                payload = message.payload.decode()
                self.came[payload] += 1
                self.order.append(payload)
                self.at_s.append(loop.time())
        except aiomqtt.MqttError as error:
            self.error = error

    async def publish(self, topic, *, rate_hz, stop, qos=1):
        """Publish ``<client id>:<number>`` until ``stop`` is set; each waits for nobody."""
        loop, number, tasks = asyncio.get_running_loop(), 0, set()
        due_s = loop.time()
        while not stop.is_set():
            task = asyncio.create_task(self._one(topic, f"{self.client_id}:{number}", qos))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            number += 1
            due_s += 1 / rate_hz
            await asyncio.sleep(max(0.0, due_s - loop.time()))
        await asyncio.gather(*tasks)

    async def _one(self, topic, payload, qos):
        try:
            await self.client.publish(topic, payload, qos=qos)
        except aiomqtt.MqttError as error:
            self.error = error
        else:
            self.acknowledged.append(payload)


@contextlib.asynccontextmanager
async def flowing(subscriber, topics, *, rate_hz, qos=1, first=50):
    """Each client of ``topics`` publishes on its topic; begins when over ``first`` came.

    Yields:
        What stops them, waits until all that brokers acknowledged came, and sees that nobody's
        connection ended.
    """
    clients, stop = [subscriber, *topics], asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        for client in clients:
            await stack.enter_async_context(client)
        flows = [
            asyncio.create_task(publisher.publish(topic, rate_hz=rate_hz, stop=stop, qos=qos))
            for publisher, topic in topics.items()
        ]
        await until(lambda: len(subscriber.came) > first, "publications flow")

        async def settled():
            stop.set()
            await asyncio.gather(*flows)
            published = {each for publisher in topics for each in publisher.acknowledged}
            await until(lambda: published <= set(subscriber.came), "all of it came")
            assert [client.error for client in clients] == [None] * len(clients)

        yield settled


async def grow(*notes, by):
    """Wait until each of what clients noted has more than ``by`` entries more than now."""
    before = [len(each) for each in notes]
    await until(
        lambda: all(len(n) > was + by for n, was in zip(notes, before, strict=True)),
        "publications flow again",
    )
