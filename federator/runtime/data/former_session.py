"""Drains, once, the session of an old client id that could be guessed.

The data connection once was ``federator-<id>-data``. What clients published at QoS 1 while its
agent was away waits under that id, and no other client fetches it. So an agent resumes that
session, takes all that waits, like publications on the data connection, and has the broker drop it.

Meanwhile clients publish. The former session keeps its subscriptions until the new one, under the
secret id, has its own, so that each publication comes by one of both, or by both. A *cut*, a mark
of ours that both subscribe, separates them: what the broker queued in front of it is taken from the
former session, what is behind it from the new one. The cut is sent when the former session has
nothing left that waits, so that it comes at once; what is behind it is not acknowledged there, and
comes again if the agent is killed now.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

import structlog
from mqtt5 import PublishPacket

from federator.protocol.messages.topics import cover_topic
from federator.runtime.data.data_path import DataPath
from federator.runtime.mqtt.link import Inbound, LinkObserver, MqttLink
from federator.runtime.mqtt.subscriptions import live_filter

MARK_GAP_S: Final = 1.0
LOOK_S: Final = 0.05
MARKS_MAX: Final = 10
"""After so many unanswered marks we give up what still waits: an ACL may keep them from us."""

_log = structlog.get_logger()


class Heir(Protocol):
    """Handles the data connection under the secret id."""

    def await_cut(self, is_cut: Callable[[PublishPacket], bool]) -> None:
        """Leave clients' publications to another session until the cut, and then hold them."""

    def release(self) -> None:
        """Handle what is held, and everything from now on."""


@dataclass(kw_only=True, eq=False, repr=False)
class FormerSession(LinkObserver):
    """One former session, and the connection that resumes it.

    It stands between that connection and the data path, to know what is not acknowledged yet.
    """

    make_link: Callable[[LinkObserver], MqttLink]
    federation: str
    data_path: DataPath  # takes custody of publications
    # Handles publications, as on the data connection.
    take: Callable[[memoryview, list[Inbound]], None]
    heir: Heir
    stands: Callable[[], bool]  # whether the heir's session has all its subscriptions
    forget: Callable[[], None]  # called when nothing is left of it

    def __post_init__(self) -> None:
        self._link = self.make_link(self)
        self._mark_topic = cover_topic(self.federation)
        self._secret = secrets.token_bytes(16)
        self._cut = self._secret + b"cut"
        self._owed: set[int] = set()  # packet ids that are not acknowledged yet
        self._marks: set[bytes] = set()  # marks received
        self._taken = 0
        self._is_there: bool | None = None  # None: unknown
        self._is_parted = False  # the cut came to the heir
        self._awaited = b""  # the mark that is waited for
        self._through = asyncio.Event()
        self.found = asyncio.Event()
        self._link.subscribe([live_filter(self._mark_topic)])

    async def empty(self) -> None:
        """Take what waits, and have the broker drop the session; tries until it is reached.

        The heir's connection must run from ``found`` on.
        """
        running = asyncio.create_task(self._link.run(), name="former session")
        whole = True
        try:
            await self.found.wait()
            if self._is_there:
                whole = await self._comes(self._secret + b"waited")
                whole = await self._comes(self._cut) and whole
            await self._link.close(keep_session=False)
            await running
        finally:
            running.cancel()
        self.forget()
        self.heir.release()
        _log.info("session.moved", publications=self._taken, whole=whole)

    async def _comes(self, mark: bytes) -> bool:
        """Send ``mark`` until it came, with all before it in custody; ``False``: in vain."""
        self._awaited = mark
        self._through.clear()
        tries, taken = 0, -1
        while not self._through.is_set() and tries < MARKS_MAX:
            if ready := self._link.subscribed and self.stands():
                tries = tries + 1 if taken == self._taken else 1  # a long queue takes its time
                taken = self._taken
                self._link.publish(self._mark_topic, mark, qos=1)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MARK_GAP_S if ready else LOOK_S):
                    await self._through.wait()
        return self._through.is_set()

    def _look(self) -> None:
        is_parted = self._awaited != self._cut or self._is_parted
        if self._awaited in self._marks and not self._owed and is_parted:
            self._through.set()

    def _parts(self, packet: PublishPacket) -> bool:
        """Whether ``packet``, which came to the heir, is the cut."""
        if packet.payload != self._cut:
            return False
        self._is_parted = True
        self._look()
        return True

    # In the role of its link

    @property
    def session_number(self) -> int:
        return self._link.session_number

    def acknowledge(self, packet_ids: Iterable[tuple[int, int]], *, session_number: int) -> None:
        ids = list(packet_ids)
        self._link.acknowledge(ids, session_number=session_number)
        self._owed.difference_update(packet_id for packet_id, _ in ids)
        self._look()

    # In the role of its observer

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        """The broker accepted us; perhaps it has no such session."""
        self.data_path.on_data_up(session_present=session_present)
        if self._is_there is None:
            self._is_there = session_present
            if session_present:
                self.heir.await_cut(self._parts)
            self.found.set()

    def on_down(self, link: MqttLink, reason: str) -> None:
        """What was not acknowledged comes again, with a mark behind it."""
        if self._owed:
            self._owed.clear()
            self._marks.clear()
        self.data_path.on_data_down()

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """Handle the publications of one socket read in front of the cut."""
        others: list[Inbound] = []
        ids: list[tuple[int, int]] = []
        for inbound in publishes:
            packet = inbound[0]
            if self._cut in self._marks:
                break
            if packet.topic != self._mark_topic:
                others.append(inbound)
            elif packet.packet_id is not None:  # at QoS 0 a stranger's would overtake what waits
                self._marks.add(packet.payload)
            if packet.packet_id is not None:
                ids.append((packet.packet_id, int(packet.qos)))
        self._owed.update(packet_id for packet_id, _ in ids)
        self._taken += len(others)
        self.take(chunk, others)
        self.data_path.acknowledge(self, ids)
