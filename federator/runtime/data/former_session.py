"""Takes, once, what waits in the session of a name that could be guessed.

The data connection was ``federator-<id>-data`` once. What clients published at QoS 1 while its
agent was away waits under that name, and nobody else asks for it. So before an agent first connects
under its own, secret name it resumes that session, ends its subscriptions, takes all that waits as
it takes what comes on the data connection, and has the broker forget it. A mark of ours, which
queues behind all of it, tells when that is through.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import structlog

from federator.protocol.messages.topics import cover_topic
from federator.runtime.data.data_path import DataPath
from federator.runtime.mqtt.link import Inbound, LinkObserver, MqttLink
from federator.runtime.mqtt.subscriptions import live_filter

MARK_GAP_S: Final = 1.0
MARKS_MAX: Final = 10
"""Marks sent in vain, after which what still waits is given up: an ACL may keep us from them."""

_log = structlog.get_logger()


@dataclass(kw_only=True, eq=False, repr=False)
class FormerSession(LinkObserver):
    """One former session, and the connection that resumes it.

    It stands between that connection and the data path, to know what is not acknowledged yet.
    """

    make_link: Callable[[LinkObserver], MqttLink]
    federation: str
    subscribed: Iterable[str]  # what the session may subscribe
    data_path: DataPath  # takes custody of what comes
    take: Callable[[memoryview, list[Inbound]], None]  # takes what comes, as on that connection

    def __post_init__(self) -> None:
        self._link = self.make_link(self)
        self._mark_topic = cover_topic(self.federation)
        self._mark = secrets.token_bytes(16)
        self._owed: set[int] = set()  # packet ids that are not acknowledged yet
        self._marked = False
        self._taken = 0
        self._through = asyncio.Event()
        self._link.recall(self.subscribed)
        self._link.subscribe([live_filter(self._mark_topic)])

    async def empty(self) -> None:
        """Take what waits, and have the broker forget the session; tries until it is reached."""
        running = asyncio.create_task(self._link.run(), name="former session")
        try:
            marks = 0
            while not self._through.is_set() and marks < MARKS_MAX:
                if self._link.subscribed:
                    marks += 1
                    self._link.publish(self._mark_topic, self._mark, qos=1)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(MARK_GAP_S if self._link.connected else 0.05):
                        await self._through.wait()
            await self._link.close(keep_session=False)
            await running
        finally:
            running.cancel()
        whole = self._through.is_set()
        _log.info("session.moved", publications=self._taken, whole=whole)

    # As the link of what came over it

    @property
    def session_number(self) -> int:
        """Names the broker's session."""
        return self._link.session_number

    def acknowledge(self, packet_ids: Iterable[tuple[int, int]], *, session_number: int) -> None:
        """Tell the broker that these are ours."""
        known = list(packet_ids)
        self._link.acknowledge(known, session_number=session_number)
        self._owed.difference_update(packet_id for packet_id, _ in known)
        if self._marked and not self._owed:
            self._through.set()

    # As its observer

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        """The broker accepted us; perhaps it knows no such session."""
        self.data_path.on_data_up(session_present=session_present)
        if not session_present:
            self._through.set()

    def on_down(self, link: MqttLink, reason: str) -> None:
        """What was not acknowledged comes again."""
        self._owed.clear()
        self._marked = False
        self.data_path.on_data_down()

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """Take what one socket read brought."""
        ids = [(p.packet_id, int(p.qos)) for p, _, _ in publishes if p.packet_id is not None]
        self._owed.update(packet_id for packet_id, _ in ids)
        # At QoS 0 somebody who heard the mark could have it overtake what waits.
        self._marked |= any(
            p.packet_id is not None and p.payload == self._mark for p, _, _ in publishes
        )
        others = [each for each in publishes if each[0].topic != self._mark_topic]
        self._taken += len(others)
        self.take(chunk, others)
        self.data_path.acknowledge(self, ids)
