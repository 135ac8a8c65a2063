"""One MQTT connection of a reader, on paho: a client id of its own, no session left behind.

Speed does not matter here: an answer is a few large messages.
"""

import secrets
import ssl
import time
from collections.abc import Callable, Sequence

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from analytics.errors import UnavailableError
from analytics.sources.live.options import Place

KEEPALIVE_S = 30
CONNECT_S = 5.0
LOOP_S = 0.1
CLOSE_S = 1.0
QOS = 1

OnMessage = Callable[[str, bytes, bool], None]
"""Topic, payload, and whether it was retained."""


class Link:
    """A connection that subscribes ``topics`` whenever it comes up.

    Attributes:
        place: Where to.
        ready: The subscriptions stand.
        refused: Why the broker does not let us in, when it does not.
    """

    def __init__(self, place: Place, topics: Sequence[str], on_message: OnMessage) -> None:
        self.place = place
        self.ready = False
        self.refused = ""
        self._topics = [(topic, QOS) for topic in topics]
        self._on_message = on_message
        name = f"federator-analytics-{secrets.token_hex(8)}"
        self._client = client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name)
        client.connect_timeout = CONNECT_S
        client.reconnect_delay_set(1, 10)
        if place.access.username is not None:
            client.username_pw_set(place.access.username, place.access.password)
        if place.secure:
            client.tls_set_context(place.access.tls())
        client.on_connect = self._connected
        client.on_subscribe = self._subscribed
        client.on_disconnect = self._disconnected
        client.on_message = self._came

    def start(self) -> None:
        """Connect, and connect again, in a thread of its own until ``close``."""
        host, port = self.place.address
        self._client.connect_async(host, port, KEEPALIVE_S)
        self._client.loop_start()

    def connect(self, within_s: float) -> None:
        """Connect and subscribe without a thread; ``turn`` keeps it going.

        Raises:
            UnavailableError: Not within this time.
        """
        host, port = self.place.address
        end_s = time.monotonic() + within_s
        said, self.ready = "no answer", False
        while time.monotonic() < end_s:
            try:
                self._client.connect(host, port, KEEPALIVE_S)
                while not self.ready and not self.refused and time.monotonic() < end_s:
                    if self._client.loop(LOOP_S) != mqtt.MQTT_ERR_SUCCESS:
                        break
            except ssl.SSLCertVerificationError as error:
                raise UnavailableError(
                    f"broker {self.place.url}: {error.verify_message}"
                ) from error
            except OSError as error:
                said = str(error)
            if self.ready:
                return
            if self.refused:
                break
            time.sleep(LOOP_S)
        raise UnavailableError(f"broker {self.place.url}: {self.refused or said}")

    def turn(self, seconds: float = LOOP_S) -> bool:
        """Wait for messages and hand them over; whether the connection stands.

        Nothing is read from the socket in between, so a slow reader slows the sender.
        """
        return self._client.loop(seconds) == mqtt.MQTT_ERR_SUCCESS and not self.refused

    def publish(self, topic: str, payload: bytes) -> None:
        """Publish at QoS 1."""
        self._client.publish(topic, payload, QOS)

    def close(self) -> None:
        """Disconnect for good."""
        self._client.disconnect()
        self._client.loop_stop()
        end_s = time.monotonic() + CLOSE_S
        while self._client.socket() is not None and time.monotonic() < end_s:
            self._client.loop(LOOP_S)  # without a thread nobody else sends the goodbye
        # paho closes its inner sockets when it is collected, which a cycle would put off.
        self._client.on_connect = self._client.on_subscribe = None
        self._client.on_disconnect = self._client.on_message = None

    def _connected(
        self, client: mqtt.Client, data: object, flags: object, reason: ReasonCode, *_: object
    ) -> None:
        if reason.is_failure:
            self.refused = f"refused: {reason.getName()}"
        else:
            self.refused = ""
            client.subscribe(self._topics)

    def _subscribed(
        self, client: mqtt.Client, data: object, mid: int, reasons: list[ReasonCode], *_: object
    ) -> None:
        if any(reason.is_failure for reason in reasons):
            self.refused = f"may not subscribe {', '.join(topic for topic, _ in self._topics)}"
        else:
            self.ready = True

    def _disconnected(self, *_: object) -> None:
        self.ready = False

    def _came(self, client: mqtt.Client, data: object, message: mqtt.MQTTMessage) -> None:
        self._on_message(message.topic, bytes(message.payload), message.retain)
