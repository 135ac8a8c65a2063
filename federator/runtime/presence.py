"""Whether we are at our own broker, and whether another agent with our id is there in our place.

We are there when clients' publications can come and other agents can speak to us: with the data
connection, and with the control connection and all that it subscribes. Two agents with one id throw
each other out for ever, so who learns of the other gives way, with every connection: with one
each they would serve nobody.
"""

from collections.abc import Callable, Iterable

import structlog

from federator.runtime.mqtt_link import MqttLink
from federator.runtime.rivals import Rivals

_log = structlog.get_logger()


class Presence:
    """Of one agent.

    Args:
        broker: Our own broker's id, for people.
        url: Where it is, for people.
        control: The control connection to it.
        data: The data connection to it.
        others: What else gives way with them.
        changed: Told when we came or went, with ``up``.

    Attributes:
        up: We are at our broker.
    """

    def __init__(
        self,
        *,
        broker: int,
        url: str,
        control: MqttLink,
        data: MqttLink,
        others: Callable[[], Iterable[MqttLink]],
        changed: Callable[[bool], None],
    ) -> None:
        self.up = False
        self._broker = broker
        self._url = url
        self._control = control
        self._data = data
        self._others = others
        self._changed = changed
        self._told_taken_over = False
        self._rivals = Rivals([control.client_id, data.client_id])

    @property
    def taken_over(self) -> bool:
        """Another agent with our id is at our own broker."""
        return self._control.taken_over or self._data.taken_over

    def on_log(self, topic: str, payload: bytes) -> None:
        """Note a line of the broker's log, which may tell that somebody takes our place."""
        self._rivals.on_log(topic, payload)

    def look(self) -> None:
        """One of the two connections came or went."""
        up = self._control.subscribed and self._data.connected
        if up != self.up:
            self.up = up
            if up:
                self._told_taken_over = False
            self._changed(up)

    def on_lost(self, link: MqttLink) -> None:
        """One of the two is gone: ours to have again, or another agent's now."""
        if link.closed_by_broker and self._rivals.threw_out(link.client_id):
            link.give_way()
        if self.taken_over and not self._told_taken_over:
            self._told_taken_over = True
            _log.error("id.taken_over", id=self._broker, broker=self._url)
        if link.taken_over:
            for other in (self._control, self._data, *self._others()):
                if not other.taken_over:
                    other.give_way()
        self.look()
