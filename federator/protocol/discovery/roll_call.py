"""Agents ask our own clients at their broker to subscribe again, so that its log tells of them.

An agent reads from the broker's log who subscribes, and the broker counts everybody: also gateways,
collectors and readers that subscribed before anybody heard the log. They are our own programs, so
they can be asked. The agent's guide bears a number, ``Guide.roll``; whoever sees another one than
before subscribes again what it has. The broker then logs it as if it were new, and sends nothing.

Who forges guides, where no ACL and no key keeps it from that, gets a few SUBSCRIBE out of our
clients, no more often than every ``ROLL_GAP_MS``. It cannot make up for a client: what counts is
what the broker itself logs.

Source: docs/protocol.md 9.
"""

from typing import Final

from federator.protocol.types import Millis

ROLL_GAP_MS: Final = Millis(5_000)
"""Between two answers; agents ask at most half as often, and repeat their guide anyway."""


class RollCall:
    """What one of our clients has heard of the roll calls at its broker."""

    def __init__(self) -> None:
        self._roll = 0  # the newest that there is nothing to do for
        self._fresh = False
        self._answered_at_ms: Millis | None = None

    def on_up(self) -> None:
        """Note that a connection begins: we subscribe all anew, the guide before anything else."""
        self._fresh = True

    def asks(self, roll: int, *, retained: bool, now_ms: Millis) -> bool:
        """Whether we have to subscribe again, for a guide came with ``roll``.

        One that was ``retained`` there before us is of an agent that has heard us subscribe, or of
        one that is gone.
        """
        before_us, self._fresh = self._fresh and retained, False
        if not roll or roll == self._roll:
            return False
        if before_us:
            self._roll = roll
            return False
        last_ms = self._answered_at_ms
        if last_ms is not None and now_ms - last_ms < ROLL_GAP_MS:
            return False
        self._roll, self._answered_at_ms = roll, now_ms
        return True
