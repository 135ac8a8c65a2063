"""Custody of what our own clients publish with QoS 1 and 2: log it, send it, send it again.

What is in the log is ours, and only then is our broker told so. From there on nothing is hurried:
a frame that gets lost on the way is asked for, and the log has it.

Source: docs/protocol.md section 11.
"""

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from federator.protocol import effects as e
from federator.protocol.custody.disk_trouble import DiskTrouble
from federator.protocol.custody.record import Record
from federator.protocol.custody.repairs import FrameArchive, answer
from federator.protocol.custody.tails import Tails
from federator.protocol.destinations import filter_part
from federator.protocol.expiry import age_expiry
from federator.protocol.forwarding import Forwarder, Sends, TopicRoute
from federator.protocol.frames import (
    CHAIN_BYTES,
    CUSTODY_FLAG,
    KEY_BYTES,
    LAST_FLAG,
    REPAIR_FLAG,
    TAIL_FLAG,
    VOID_FLAG,
    Frame,
    chain_bytes,
    keys_in,
)
from federator.protocol.messages import RepairRequest
from federator.protocol.publications import RunChecker
from federator.protocol.types import BrokerId, Epoch, Millis

TAIL_CHAINS_MAX = 512  # in one frame
AGAIN_FRAMES_MAX = 10_000
"""Of our own, delivered again for clients that came late: more than a broker queues for one."""


class Log(FrameArchive, Protocol):
    """What an origin needs of its log."""

    @property
    def epoch(self) -> int:
        """Of the numbering."""

    @property
    def next_seq(self) -> int:
        """The number of the next record."""

    def append(self, records: Sequence[Record]) -> None:
        """Write ``records``, all or, with an ``OSError``, none."""

    def chains(self) -> Iterator[tuple[bytes, int]]:
        """The chains of which something is held, and their heads."""

    def expire(self) -> int:
        """Drop what is too old."""


class Gathered(Protocol):
    """Publications that become one frame."""

    @property
    def route(self) -> TopicRoute:
        """Where they go."""

    @property
    def parts(self) -> Sequence[bytes | memoryview]:
        """Their packets."""

    @property
    def count(self) -> int:
        """How many they are."""

    @property
    def time_us(self) -> int:
        """When they became a frame, in microseconds since 1970."""


class OriginOutlet(Protocol):
    """What an origin needs of the process around it."""

    def send_copies(self, frame: Frame, sends: Sends, body: bytes) -> int:
        """Send copies of a frame of ours to next hops."""

    def send_repair(self, neighbour: BrokerId, frame: Frame) -> bool:
        """Send a repair to a neighbour, unless much else waits to be sent there."""

    def number(self) -> tuple[Epoch, int]:
        """Epoch and number for a frame that is not under custody."""

    def tell(self, notice: e.Notice) -> None:
        """Tell the operator."""


class Origin:
    """The frames that we are the origin of.

    Args:
        self_id: Our id.
        log: Where they are kept.
        outlet: The process around.
        forwarder: Where they go.
        hop_limit: Links they may travel.
        keep_ms: How long the heads of their chains are repeated.
        wall_clock_us: Microseconds since 1970.

    Attributes:
        log: Where they are kept.
        repairs: Frames sent again.
        trouble: Of the log.
    """

    def __init__(
        self,
        *,
        self_id: BrokerId,
        log: Log,
        outlet: OriginOutlet,
        forwarder: Forwarder,
        hop_limit: int,
        keep_ms: int,
        wall_clock_us: Callable[[], int],
    ) -> None:
        self.log = log
        self.tails = Tails(keep_ms=keep_ms)
        self.repairs = 0
        self._self_id = self_id
        self._forwarder = forwarder
        self._hop_limit = hop_limit
        self._outlet = outlet
        self._wall_clock_us = wall_clock_us
        self._checker = RunChecker()
        self.trouble = DiskTrouble(e.Notice("custody.log_failed", "error"), outlet.tell)

    def resume(self, now_ms: Millis) -> None:
        """Repeat the heads of the chains of an earlier life, too."""
        for key, head in self.log.chains():
            self.tails.made(key, head, now_ms)

    def take(self, batches: Sequence[Gathered], now_ms: Millis) -> bool:
        """Log what ``batches`` hold and send it; ``False`` when the log cannot be written."""
        records = []
        seq = self.log.next_seq
        made: dict[bytes, int] = {}
        for batch in batches:
            keys = filter_part(batch.route.keys)
            each = keys_in(keys)
            prevs = tuple(made.get(key) or self.log.head(key) for key in each)
            made.update(dict.fromkeys(each, seq))
            body = b"".join(batch.parts)
            records.append(Record(seq, batch.time_us, batch.count, keys, prevs, body))
            seq += 1
        try:
            self.log.append(records)
        except OSError as error:
            self.trouble.on_error(error, now_ms)
            return False
        for key, head in made.items():
            self.tails.made(key, head, now_ms)
        for batch, record in zip(batches, records, strict=True):
            if batch.route.sends:
                frame = self._addressed(self._frame(record), batch.route.keys)
                self._outlet.send_copies(frame, batch.route.sends, record.body)
        return True

    def send_tails(self, now_ms: Millis) -> None:
        """Repeat the heads that are due."""
        due = sorted(self.tails.due(now_ms))
        body = self.log.epoch.to_bytes(8, "big")
        for at in range(0, len(due), TAIL_CHAINS_MAX):
            chains = due[at : at + TAIL_CHAINS_MAX]
            keys = b"".join(key for key, _ in chains)
            all_keys, sends = self._forwarder.route_chains(keys)
            if not sends:
                continue
            epoch, seq = self._outlet.number()
            frame = self._label(TAIL_FLAG, epoch, seq, self._wall_clock_us(), 0, keys, body)
            frame.chain = chain_bytes([head for _, head in chains])
            self._outlet.send_copies(self._addressed(frame, all_keys), sends, body)

    def on_destinations_moved(self, brokers: AbstractSet[BrokerId], now_ms: Millis) -> None:
        """A new way leads to ``brokers``: repeat the heads of what they want now."""
        for key in self.tails:
            if self._forwarder.leads_to(key, brokers):
                self.tails.hasten(key, now_ms)

    def on_request(self, request: RepairRequest) -> None:
        """Send what somebody missed, back along the way the request came."""
        first, *rest = reversed(request.path)
        if request.epoch != self.log.epoch:
            return
        repairs = answer(self.log, request.chains)
        for index, repair in enumerate(repairs, 1):
            flags = CUSTODY_FLAG | REPAIR_FLAG
            if repair.frame is not None:
                frame = self._aged(self._frame(repair.frame, flags))
            else:
                flags |= VOID_FLAG
                epoch = Epoch(self.log.epoch)
                frame = self._label(flags, epoch, repair.through, 0, 0, repair.key, b"")
                frame.chain = bytes(8)
            if index == len(repairs):
                frame.flags |= LAST_FLAG
            frame.route = tuple(rest)
            if not self._outlet.send_repair(first, frame):
                return
            self.repairs += 1

    def made_since(self, keys: Sequence[bytes], since_us: int) -> list[int]:
        """Numbers of our own frames on ``keys`` since ``since_us``, ascending, not all of many."""
        seqs: set[int] = set()
        for key in keys:
            first = self.log.first_since(key, since_us)
            if first is not None:
                seqs.update(self.log.select(key, first - 1, limit=AGAIN_FRAMES_MAX))
        return sorted(seqs)[:AGAIN_FRAMES_MAX]

    def frame_again(self, seq: int) -> Frame | None:
        """One of our own frames, as far as it has not expired."""
        record = self.log.read(seq)
        return self._aged(self._frame(record)) if record is not None else None

    def _addressed(self, frame: Frame, keys: bytes) -> Frame:
        """``frame`` with ``keys``: its own, and those of destinations, which have no chains."""
        frame.chain += bytes(CHAIN_BYTES * (len(keys) // KEY_BYTES - frame.k))
        frame.keys = keys
        return frame

    def _frame(self, kept: Record, flags: int = CUSTODY_FLAG) -> Frame:
        frame = self._label(
            flags,
            Epoch(self.log.epoch),
            kept.seq,
            kept.time_us,
            kept.publications,
            kept.keys,
            kept.body,
        )
        frame.chain = chain_bytes(kept.prevs)
        return frame

    def _aged(self, frame: Frame) -> Frame:
        """``frame`` without the publications that expired since it was made."""
        age_s = (self._wall_clock_us() - frame.origin_time_us) // 1_000_000
        if age_s > 0:
            run = bytearray(frame.body)
            places = self._checker.check(
                bytes(run), acknowledged=True, publications=frame.publications
            )
            alive = age_expiry(run, places, age_s=age_s)
            frame.body = memoryview(b"".join(run[start:end] for start, end, _, _ in alive))
            frame.publications = len(alive)
        return frame

    def _label(
        self,
        flags: int,
        epoch: Epoch,
        seq: int,
        time_us: int,
        publications: int,
        keys: bytes,
        body: bytes,
    ) -> Frame:
        return Frame(
            flags=flags,
            hops=0,
            hop_limit=self._hop_limit,
            sender=self._self_id,
            origin=self._self_id,
            epoch=epoch,
            seq=seq,
            origin_time_us=time_us,
            publications=publications,
            keys=keys,
            mask=(1 << len(keys) // KEY_BYTES) - 1,
            body=memoryview(body),
        )
