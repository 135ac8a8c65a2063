"""Agents ask our own clients at their broker to subscribe again, so that it logs them.

An agent reads subscriptions from the broker's log, and the broker counts all of them: also those of
gateways, collectors and readers from before the agent received the log. These are our own programs,
so the agent can ask them. The agent's guide carries a number, ``Guide.roll``; a client that sees
another number than before repeats its subscriptions. The broker then logs them as if they were new,
and sends nothing.

A client that forges guides, where neither an ACL nor a key prevents it, makes our clients send a
few SUBSCRIBE, no more often than every ``ROLL_GAP_MS``. It cannot invent a client: only what the
broker itself logs counts.

Source: docs/protocol.md 9.
"""

from typing import Final

from federator.protocol.types import Millis

ROLL_GAP_MS: Final = Millis(5_000)
"""Between two answers; agents ask at most half as often, and repeat their guide anyway."""


class RollCall:
    """The roll calls that one of our clients has received at its broker."""

    def __init__(self) -> None:
        self._roll = 0  # the newest one that needs no answer
        self._fresh = False
        self._answered_at_ms: Millis | None = None

    def on_up(self) -> None:
        """Note that a connection begins: we subscribe everything anew, the guide first."""
        self._fresh = True

    def asks(self, roll: int, *, retained: bool, now_ms: Millis) -> bool:
        """Whether we must subscribe again now that a guide came with ``roll``.

        A guide ``retained`` from before our connection is of an agent that logged our
        subscriptions, or of one that is gone.
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
