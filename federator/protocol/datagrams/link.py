"""Both directions between us and one neighbour, and whether datagrams get through at all.

Before any frame is sent on it, and again after every silence, a datagram of full length must have
arrived there and a report of it must have come back. So a firewall, or a path MTU below our
datagrams, costs probes and nothing else. A link that loses more than any redundancy repairs, or
that falls silent, is not used for a while: all frames it held go through the broker.

Source: docs/udp-fec.md, "When it is used"; RFC 8085, 3.1.10 (circuit breakers).
"""

from typing import Final

from federator.errors import DecodeError
from federator.protocol.datagrams import wire
from federator.protocol.datagrams.protection import Coder
from federator.protocol.datagrams.receiver import Receiver
from federator.protocol.datagrams.sender import Limits, Outcome, Sender
from federator.protocol.types import Millis

PROBE_MS: Final = 1_000
SILENT_MS: Final = 3_000
"""A link is given up after so long without a report, while there was something to report."""

PLR_USABLE_MAX: Final = 0.3
REST_MS: Final = 10_000
"""For how long a link that loses more is not used."""


class DatagramLink:
    """The link over datagrams to one neighbour; ``stream``: see ``Sender``."""

    def __init__(self, limits: Limits, coder: Coder, *, stream: int, now_ms: Millis) -> None:
        self.sender = Sender(limits, coder, stream=stream)
        self.receiver = Receiver(coder)
        self.usable = False
        self.malformed = 0
        self._limits = limits
        self._probe_at_ms = now_ms
        self._reported_at_ms = now_ms
        self._rests_until_ms = now_ms

    def next_deadline_ms(self) -> Millis:
        """When ``on_deadline`` has something to do."""
        times = (
            self._probe_at_ms,
            self.sender.next_deadline_ms(),
            self.receiver.next_deadline_ms(),
        )
        return min(time for time in times if time is not None)

    def offer(self, frame: bytes, *, now_ms: Millis) -> list[bytes] | None:
        """Datagrams to send for ``frame``; ``None``: it must go through the broker."""
        return self.sender.offer(frame, now_ms=now_ms) if self.usable else None

    def on_datagram(self, datagram: bytes, *, now_ms: Millis) -> Outcome:
        """Handle a datagram of the neighbour."""
        try:
            stream, number, body = wire.unpack(datagram)
            if isinstance(body, wire.Report):
                self.receiver.note_number(stream, number)
                return self._on_report(body, now_ms)
            frames = self.receiver.take(stream, number, body, now_ms=now_ms)
        except DecodeError:
            self.malformed += 1
            return Outcome()
        return self._reporting(Outcome(frames=frames), now_ms)

    def on_deadline(self, *, now_ms: Millis) -> Outcome:
        """Do what is due: probe, repair, give frames back, or report."""
        outcome = self.sender.on_deadline(now_ms=now_ms)
        if now_ms >= self._probe_at_ms:
            outcome.datagrams += self._probe(now_ms)
        if self.usable and now_ms - self._reported_at_ms > SILENT_MS:
            outcome.given_back += self.give_up()
        outcome.frames = self.receiver.release(now_ms=now_ms)
        return self._reporting(outcome, now_ms)

    def give_up(self) -> list[bytes]:
        """Stop using the link for now; return the frames that must go another way."""
        self.usable = False
        return self.sender.give_all_back()

    def _probe(self, now_ms: Millis) -> list[bytes]:
        """Request a report, unless other datagrams did; with a long one while unproven."""
        self._probe_at_ms = Millis(now_ms + PROBE_MS)
        asked_ms = self.sender.asked_ms
        if self.usable and asked_ms is not None and now_ms - asked_ms < PROBE_MS:
            return []
        head = self.sender.head(wire.PROBE, now_ms)
        return [head if self.usable else head.ljust(self._limits.datagram_bytes, b"\0")]

    def _on_report(self, report: wire.Report, now_ms: Millis) -> Outcome:
        outcome = self.sender.on_report(report, now_ms=now_ms)
        if outcome is None:
            return Outcome()
        self._reported_at_ms = now_ms
        if self.sender.plr > PLR_USABLE_MAX:
            self._rests_until_ms = Millis(now_ms + REST_MS)
            outcome.given_back += self.give_up()
        else:
            self.usable = now_ms >= self._rests_until_ms
        return self._reporting(outcome, now_ms)

    def _reporting(self, outcome: Outcome, now_ms: Millis) -> Outcome:
        """Add our own report to ``outcome``, if it is due."""
        report = self.receiver.report(now_ms=now_ms)
        if report is not None:
            head = self.sender.head(wire.REPORT, now_ms)
            outcome.datagrams.append(head + wire.report_body(report))
        return outcome
