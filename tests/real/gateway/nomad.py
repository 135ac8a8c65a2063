"""A client with a persistent session and a list of brokers, as paho makes one."""

import threading
from collections import Counter

import paho.mqtt.client as paho

from tests.real.polling import until


class Nomad:
    """Subscribes once, goes from broker to broker, and notes what came.

    Attributes:
        came: How often each number came.
        session_present: What the broker said at the last connection.
    """

    def __init__(self, client_id, *filters, protocol=paho.MQTTv311):
        self.came = Counter()
        self.session_present = None
        self._filters = filters
        self._lock = threading.Lock()
        self._client_id = client_id
        self._protocol = protocol
        self._client = None
        self._subscribed = False

    async def go(self, port):
        """Connect there; subscribe unless the broker has the session."""
        self.leave()
        self.session_present, self._subscribed = None, False
        v5, options = self._protocol == paho.MQTTv5, {}
        self._client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id=self._client_id,
            protocol=self._protocol,
            **({} if v5 else {"clean_session": False}),
        )
        self._client.on_connect = self._on_connect
        self._client.on_message = self._on_message
        self._client.on_subscribe = self._on_subscribe
        if v5:
            options["properties"] = paho.Properties(paho.PacketTypes.CONNECT)
            options["properties"].SessionExpiryInterval = 3_600
            options["clean_start"] = False
        self._client.connect("127.0.0.1", port, keepalive=30, **options)
        self._client.loop_start()
        await until(lambda: self._subscribed, "the client has its subscriptions")

    def leave(self):
        if self._client is not None:
            self._client.disconnect()
            self._client.loop_stop()
            self._client = None

    def numbers(self):
        with self._lock:
            return set(self.came)

    def _on_connect(self, client, userdata, flags, reason, properties):
        self.session_present = flags.session_present
        if flags.session_present:
            self._subscribed = True
        else:
            client.subscribe([(f, 1) for f in self._filters])

    def _on_subscribe(self, client, userdata, mid, reasons, properties):
        self._subscribed = True

    def _on_message(self, client, userdata, message):
        with self._lock:
            self.came[int(message.payload)] += 1
