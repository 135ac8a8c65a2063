"""What a broker's own clients publish at QoS 1, as ``runtime.intake`` takes it.

What is in the log is ours, and only then is the broker told so. When the log cannot be written,
publications wait unacknowledged, and the broker soon sends no more.

Source: docs/protocol.md section 11.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from federator.protocol.custody import Custodian
from federator.protocol.forwarding import Forwarder, TopicRoute
from federator.sim.data import number_of, packet_of, packets_in
from federator.sim.messages.disks import FrameLog
from federator.sim.messages.sessions import Message

REDELIVERED_MAX = 2_000
RETRY_MS = 1_000
"""Until the log is tried again that could not be written."""


class Acknowledger(Protocol):
    """The connection to the broker, and time."""

    def acknowledge(self, taken: list[tuple[int, int]]) -> None:
        """Tell our broker that it need not keep publications: (packet id, number)."""

    def step(self) -> None:
        """One more thing is done that a crash may come after."""

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call it then."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A publication that is not in the log yet."""

    route: TopicRoute
    message: Message
    packet_id: int


@dataclass(frozen=True, slots=True)
class Run:
    """Publications that become one frame; satisfies ``Gathered``."""

    route: TopicRoute
    parts: list[bytes | memoryview]
    count: int
    time_us: int


class Intake:
    """What came and is not acknowledged.

    Args:
        custodian: Takes it.
        log: What it writes to.
        forwarder: Where it goes.
        outlet: The process around.
        now_us: Our wall clock.
    """

    def __init__(
        self,
        custodian: Custodian,
        log: FrameLog,
        forwarder: Forwarder,
        outlet: Acknowledger,
        now_us: Callable[[], int],
    ) -> None:
        self._custodian = custodian
        self._log = log
        self._forwarder = forwarder
        self._outlet = outlet
        self._now_us = now_us
        self._waiting: list[Taken] = []
        self._unacknowledged: list[tuple[int, int]] = []
        self._redelivered: dict[int, int] = {}
        self._retrying = False

    def on_local_up(self, *, session_present: bool) -> None:
        """With its session, the broker sends again what it holds unacknowledged."""
        self._redelivered.clear()
        if session_present:
            for kept in self._log.recent(REDELIVERED_MAX):
                for packet in packets_in(kept.body):
                    assert packet.packet_id is not None, "what is logged was published at QoS 1"
                    self._redelivered.setdefault(packet.packet_id, number_of(packet))

    def on_local_down(self) -> None:
        """The broker is gone: log what we have, forget the rest. It comes again."""
        self._flush()
        self._waiting.clear()
        self._unacknowledged.clear()

    def take(self, message: Message, packet_id: int) -> None:
        """Take a publication."""
        self._unacknowledged.append((packet_id, message.number))
        route = self._forwarder.route_topic(message.topic)
        if route is not None and self._redelivered.get(packet_id) != message.number:
            self._waiting.append(Taken(route, message, packet_id))
        self._flush()

    def _flush(self) -> None:
        """Log, send and acknowledge what waits, or try again later."""
        runs = [list(run) for _, run in groupby(self._waiting, key=lambda taken: id(taken.route))]
        if runs and not self._custodian.take([self._run(run) for run in runs]):
            if not self._retrying:
                self._retrying = True
                self._outlet.later(RETRY_MS, self._retry)
            return
        self._waiting = []
        self._outlet.step()
        done, self._unacknowledged = self._unacknowledged, []
        self._outlet.acknowledge(done)
        self._custodian.finish()

    def _retry(self) -> None:
        self._retrying = False
        self._flush()

    def _run(self, run: list[Taken]) -> Run:
        parts: list[bytes | memoryview] = [
            packet_of(t.message.topic, t.message.number, t.message.qos, t.packet_id) for t in run
        ]
        return Run(run[0].route, parts, len(run), self._now_us())
