"""Reports to gateways, and to ourselves, which acknowledged publications are in custody.

A mark comes on the data connection at QoS 1, so behind every publication that the broker
acknowledged before it took the mark. We answer it after acknowledging it and everything before it:
all that is in the custody log then.

Source: docs/gateway.md, "What a PUBACK is worth".
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from mqtt5 import PublishPacket

from federator.errors import DecodeError
from federator.protocol.messages.gateways import Mark, Taken
from federator.protocol.messages.json_codec import decode, encode
from federator.protocol.messages.topics import mark_topic, taken_topic
from federator.protocol.rate_limiter import WindowCounter
from federator.protocol.trust.words import is_signed
from federator.runtime.mqtt.link import Inbound, MqttLink
from federator.runtime.process.clocks import monotonic_ms

WAITING_MAX: Final = 1_024
"""Gateways with a remembered newest mark."""

WINDOW_MS: Final = 50
JUDGED_MAX: Final = 64
"""Proofs, 0.13 ms each, in one window. A gateway asks again if its mark is ignored."""

CAUGHT_UP_SECONDS_MAX: Final = 5.0
"""How long we wait for a mark of our own: the broker may be gone, or refuse it."""

_PROOFS: Final = "proofs"
_OURS: Final = "agent".ljust(65, ".")  # longer than a gateway's name may be


@dataclass(eq=False, repr=False)
class GatewayMarks:
    """The marks that came and are not answered yet."""

    federation: str
    link: MqttLink
    is_gateways: Callable[[PublishPacket, str], bool]  # whether that gateway sent it
    sign: Callable[[str, bytes], bytes]  # adds our proof to a message on a topic

    def __post_init__(self) -> None:
        self.topic = mark_topic(self.federation)  # where marks come, on the data connection
        self._waiting: dict[str, tuple[int, bool]] = {}  # newest number, and whether it was signed
        self._signatures_checked: WindowCounter[str] = WindowCounter(window_ms=WINDOW_MS)
        self._own: dict[int, asyncio.Event] = {}  # set when it is answered
        self._own_came: list[asyncio.Event] = []
        self.malformed = 0

    async def caught_up(self) -> None:
        """Return when everything that our broker acknowledged by now is in the custody log."""
        number = secrets.randbits(62)  # no other client can send it before we do
        caught_up = self._own[number] = asyncio.Event()
        self.link.publish(self.topic, encode(Mark(_OURS, number)), qos=1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CAUGHT_UP_SECONDS_MAX):
                await caught_up.wait()
        del self._own[number]

    def note(self, publishes: Sequence[Inbound]) -> None:
        """Remember the marks among ``publishes``; call it before they are acknowledged."""
        for packet, _, _ in publishes:
            if packet.topic != self.topic or packet.packet_id is None:
                continue
            try:
                mark = decode(Mark, packet.payload)
            except DecodeError:
                self.malformed += 1
                continue
            if mark.gateway == _OURS:
                if mark.number in self._own:
                    self._own_came.append(self._own[mark.number])
                continue
            room = mark.gateway in self._waiting or len(self._waiting) < WAITING_MAX
            signed, checked = (
                is_signed(packet.payload),
                self._signatures_checked.so_far(monotonic_ms()),
            )
            checked[_PROOFS] += signed
            if room and checked[_PROOFS] <= JUDGED_MAX and self.is_gateways(packet, mark.gateway):
                newest = (mark.number, signed)
                self._waiting[mark.gateway] = max(newest, self._waiting.get(mark.gateway, newest))

    def on_acknowledged(self) -> None:
        """Answer the marks: everything received is in the custody log and acknowledged."""
        if not (self._waiting or self._own_came):
            return
        for caught_up in self._own_came:
            caught_up.set()
        self._own_came.clear()
        for gateway, (number, signed) in self._waiting.items():
            topic, answer = taken_topic(self.federation, gateway), encode(Taken(number))
            self.link.publish(topic, self.sign(topic, answer) if signed else answer)
        self._waiting.clear()

    def on_down(self) -> None:
        """The data connection is lost; what was not acknowledged comes again, with marks."""
        self._waiting.clear()
        self._own_came.clear()
