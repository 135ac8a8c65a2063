"""Keeps an agent's keys up with their files, and its neighbours up with what is taken back.

A list of revocations that is news to us goes to every neighbour, and all we have to one that comes
up: so it reaches whoever is connected, and stops where it is known.

Source: docs/security.md.
"""

import asyncio
from collections.abc import Callable, Iterable

from federator.protocol.messages import Revoked
from federator.protocol.types import BrokerId, ConnId
from federator.runtime.trust import Trust

LOOK_S = 2.0


class KeyKeeper:
    """Of one agent in signed or sealed mode.

    Args:
        self_id: Our broker's id.
        trust: The keys.
        neighbours: Connections to neighbours that are up.
        send: Sends over one of them, if it is still there.
    """

    def __init__(
        self,
        self_id: BrokerId,
        trust: Trust,
        *,
        neighbours: Callable[[], Iterable[ConnId]],
        send: Callable[[ConnId, Revoked], None],
    ) -> None:
        self._self_id = self_id
        self._trust = trust
        self._neighbours = neighbours
        self._send = send

    async def run(self) -> None:
        """Look at the files again and again."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._trust.look():
                self.pass_on()

    def on_revoked(self, message: Revoked) -> None:
        """A neighbour passes on what it knows."""
        if self._trust.on_revoked(message):
            self.pass_on()

    def pass_on(self, *, to: ConnId | None = None) -> None:
        """To one neighbour that came up, or to all."""
        lists = self._trust.lists(self._self_id)
        if lists is not None:
            for conn in [to] if to is not None else list(self._neighbours()):
                self._send(conn, lists)
