"""Noticing another agent with our id at our own broker, where the broker does not say so.

MQTT has a reason code for it (0x8e), but Mosquitto 2.0 just closes the connection of whoever was
there first, who would come back and close the other's, for ever. Its log tells: a client that hears
that its place is being taken, and is closed the next moment, was thrown out by a rival.

Source: Mosquitto's log line "Client ID already connected, closing old connection."
"""

import time
from collections.abc import Callable, Iterable

NEXT_MOMENT_S = 1.0

LOG_TOPIC = "$SYS/broker/log/E"


class Rivals:
    """Watches the broker's log for our own client ids.

    Args:
        client_ids: Ours at our own broker.
        clock: Monotonic seconds.
    """

    def __init__(
        self, client_ids: Iterable[str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lines = {
            f"Client {id} already connected, closing old connection.".encode(): id
            for id in client_ids
        }
        self._clock = clock
        self._taken_at_s: dict[str, float] = {}

    def on_log(self, topic: str, payload: bytes) -> None:
        """Note a line of the broker's log."""
        if topic != LOG_TOPIC:
            return
        for line, client_id in self._lines.items():
            if payload.endswith(line):
                self._taken_at_s[client_id] = self._clock()

    def threw_out(self, client_id: str) -> bool:
        """Whether it was a rival that made the broker close ``client_id`` just now."""
        taken_at_s = self._taken_at_s.pop(client_id, None)
        return taken_at_s is not None and self._clock() - taken_at_s < NEXT_MOMENT_S
