"""A direct connection of two agents, past the brokers, with each packet sealed for its position.

A seal proves which neighbour made a packet. It does not prove that none is missing before it: a
machine on the path can drop frames, insert others that it kept from an earlier connection, and
repeat a confirmation. So each seal also covers the connection, by a number that each end drew for
it, the sort of the packet, and how many of that sort came before. As in TLS a packet opens only at
its position, and what is confirmed is what the neighbour received.

Source: docs/direct.md, "How it works".
"""

from collections import Counter
from typing import Final

from federator.errors import DecodeError
from federator.protocol.trust.authority import DistrustError
from federator.protocol.trust.guard import CONTROL, DIRECT, Guard
from federator.protocol.types import BrokerId

DRAWN_BYTES: Final = 16
"""Length of the number that each end draws for a connection."""

_HELLO: Final = "direct"


class SealedConnection:
    """One end of a connection with ``neighbour``.

    Args:
        name: The numbers that both ends drew, the connecting end's first.
    """

    def __init__(self, guard: Guard, neighbour: BrokerId, name: bytes) -> None:
        self._guard = guard
        self._neighbour = neighbour
        self._name = name.hex()
        self._sealed, self._opened = Counter[str](), Counter[str]()

    def seal(self, sort: str, body: bytes) -> bytes | None:
        """Seal the next packet of its sort; ``None`` when the neighbour's keys are gone."""
        place = f"{self._name}{sort}{self._sealed[sort]}"
        sealed = self._guard.seal(DIRECT, place, body, self._neighbour)
        if sealed is not None:
            self._sealed[sort] += 1
        return sealed

    def open(self, sort: str, payload: bytes) -> bytes:
        """Open the next packet of its sort.

        Raises:
            DecodeError: It is not the one that the neighbour sealed for this position.
        """
        place = f"{self._name}{sort}{self._opened[sort]}"
        sender, body = self._guard.unseal(DIRECT, place, payload)
        _check(sender, self._neighbour)
        self._opened[sort] += 1
        return body


def greet(guard: Guard, neighbour: BrokerId, drawn: bytes) -> bytes | None:
    """The first packet of the connecting end; ``None`` while there are no keys."""
    return guard.seal(CONTROL, _HELLO, drawn, neighbour)


def welcome(
    guard: Guard, neighbour: BrokerId, greeting: bytes, drawn: bytes
) -> tuple[bytes, SealedConnection]:
    """The answer to the first packet, and the connection that begins with it.

    Raises:
        DecodeError: The greeting is not from ``neighbour``, or it is a replay.
    """
    sender, theirs = guard.unseal(CONTROL, _HELLO, greeting)
    _check(sender, neighbour)
    answer = guard.seal(DIRECT, _HELLO + _checked(theirs).hex(), drawn, neighbour)
    if answer is None:
        raise DistrustError(f"no keys to answer {neighbour}")
    return answer, SealedConnection(guard, neighbour, theirs + drawn)


def welcomed(guard: Guard, neighbour: BrokerId, drawn: bytes, answer: bytes) -> SealedConnection:
    """The connection that begins with ``answer`` to the greeting in which we sent ``drawn``.

    Raises:
        DecodeError: It is not the answer of ``neighbour`` to that.
    """
    sender, theirs = guard.unseal(DIRECT, _HELLO + drawn.hex(), answer)
    _check(sender, neighbour)
    return SealedConnection(guard, neighbour, drawn + _checked(theirs))


def _check(sender: BrokerId, neighbour: BrokerId) -> None:
    if sender != neighbour:
        raise DistrustError(f"{sender} speaks on a connection with {neighbour}")


def _checked(drawn: bytes) -> bytes:
    if len(drawn) != DRAWN_BYTES:
        raise DecodeError(f"{len(drawn)} bytes for a connection, {DRAWN_BYTES} wanted")
    return drawn
