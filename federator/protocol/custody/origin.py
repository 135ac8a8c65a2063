"""Custody of what our own clients publish with QoS 1 and 2: log it, send it, send it again.

We acknowledge a publication to our broker only when it is in the log. From then on nothing is
urgent: if a frame is lost on the way, the receiver asks for it, and the log has it.

Source: docs/protocol.md section 11; for tails, the source path messages of PGM (RFC 3208).
"""

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from federator.protocol.bounded_cache import Lately
from federator.protocol.custody.doubts import Notary
from federator.protocol.custody.ports import Disk, Log, Record, Sender
from federator.protocol.forwarding.expiry import age_expiry
from federator.protocol.forwarding.forwarding import Forwarder, TopicRoute
from federator.protocol.forwarding.frames import (
    CHAIN_BYTES,
    CUSTODY_FLAG,
    KEY_BYTES,
    LAST_FLAG,
    REPAIR_FLAG,
    TAIL_FLAG,
    VOID_FLAG,
    WORD_FLAG,
    Frame,
    OwnFrames,
    chain_bytes,
    keys_in,
)
from federator.protocol.forwarding.publications import RunChecker
from federator.protocol.messages.control import AskedChain, RepairRequest
from federator.protocol.messages.destinations import filter_part
from federator.protocol.types import BrokerId, Epoch, Millis, Now

STEPS_MS = (100, 400, 1_600, 6_400, 10_000)
"""The wait after the last frame, after the first tail, and so on; the last one repeats."""

TAILS_PER_TURN_MAX = 2_048
TAIL_CHAINS_MAX = 512  # in one frame

ANSWER_BYTES_MAX = 131_072
ANSWER_FRAMES_MAX = 256
ASKED_MS = 15_000
"""A neighbour that does not ask again for so long has received what was repeated."""

ASKING_MAX = 64
AGAIN_FRAMES_MAX = 10_000
"""How many of our own frames are delivered again to late clients: more than a broker queues for
one.
"""


class Gathered(Protocol):
    """Publications that become one frame."""

    route: TopicRoute
    parts: list[bytes | memoryview]  # their packets
    count: int  # how many publications there are
    time_us: int  # when they became a frame, in microseconds since 1970


class Tails:
    """When to repeat the number of the last frame on a chain, its *head*.

    A gap shows when the next frame comes. When none comes, only the origin knows that the last one
    exists. So it sends a tail a tenth of a second after the chain fell silent, and then at growing
    intervals, for ``keep_ms``. The tails of many chains travel in one frame.
    """

    def __init__(self, *, keep_ms: int) -> None:
        self._keep_ms = keep_ms
        self._heads: dict[bytes, tuple[int, Millis]] = {}  # the head, and when it was made
        self._queues: list[deque[tuple[Millis, bytes, int]]] = [deque() for _ in STEPS_MS]
        self._waits: dict[bytes, tuple[int, Millis]] = {}  # in which queue, until when
        self._hastened_ms: dict[bytes, Millis] = {}

    def __iter__(self) -> Iterator[bytes]:
        """The chains with repeated heads."""
        return iter(self._heads)

    def made(self, key: bytes, seq: int, now_ms: Millis) -> None:
        """A frame was made on the chain of ``key``."""
        self._heads[key] = (seq, now_ms)
        step, _ = self._waits.get(key, (-1, now_ms))
        if step != 0:  # otherwise it is checked soon anyway
            self._wait(0, Millis(now_ms + STEPS_MS[0]), key, seq)

    def hasten(self, key: bytes, now_ms: Millis) -> None:
        """Repeat the head of a chain soon: a new route leads to a broker that wants it.

        When one broker dies, routes to a hundred others may move through this one after the other,
        so the head is repeated at most once per ``STEPS_MS[1]``.
        """
        head = self._heads.get(key)
        if head is None or now_ms - self._hastened_ms.get(key, -STEPS_MS[1]) < STEPS_MS[1]:
            return
        self._hastened_ms[key] = now_ms
        self._waits[key] = 0, now_ms
        self._queues[0].appendleft((now_ms, key, head[0]))

    def _wait(self, step: int, until_ms: Millis, key: bytes, seq: int) -> None:
        self._waits[key] = step, until_ms
        self._queues[step].append((until_ms, key, seq))

    def next_deadline_ms(self) -> Millis | None:
        return min((queue[0][0] for queue in self._queues if queue), default=None)

    def due(self, now_ms: Millis) -> list[tuple[bytes, int]]:
        """The chains to repeat now, with their heads; at most ``TAILS_PER_TURN_MAX``."""
        due: dict[bytes, int] = {}
        for step, queue in enumerate(self._queues):
            while queue and queue[0][0] <= now_ms and len(due) < TAILS_PER_TURN_MAX:
                until_ms, key, seq = queue.popleft()
                if self._waits.get(key) != (step, until_ms):
                    continue
                head, made_ms = self._heads[key]
                # Newer frames were made: check again when the chain may have fallen silent.
                if head != seq:
                    self._wait(0, Millis(made_ms + STEPS_MS[0]), key, head)
                    continue
                if now_ms - made_ms > self._keep_ms:
                    del self._heads[key], self._waits[key]
                    self._hastened_ms.pop(key, None)
                    continue
                due[key] = head
                later = min(step + 1, len(STEPS_MS) - 1)
                self._wait(later, Millis(now_ms + STEPS_MS[later]), key, head)
        return list(due.items())


@dataclass(frozen=True, slots=True)
class Repair:
    """One part of an answer: a frame, or that a chain has nothing up to ``through``."""

    frame: Record | None
    key: bytes = b""
    through: int = 0
    since_us: int = 0  # nothing made since then; 0: nothing at all


def answer(
    archive: Log,
    chains: Sequence[AskedChain],
    *,
    bytes_max: int = ANSWER_BYTES_MAX,
    frames_max: int = ANSWER_FRAMES_MAX,
) -> list[Repair]:
    """What to send for a request, in this order.

    The answer takes the asked chains together, oldest frame first, because a frame of several
    filters can be delivered only when it is next on all of them. It is bounded: the receiver asks
    again for the next part. Frames that are gone from the archive are reported as gone; a damaged
    frame only to a receiver that has everything before it.
    """
    repairs: list[Repair] = []
    runs: list[list[int]] = []
    for key, after, not_before_us in chains:
        through = _nothing_through(archive, key, after, not_before_us)
        if through > after or not_before_us:
            repairs.append(Repair(None, key, through, not_before_us))
        runs.append(archive.select(key, max(after, through), limit=frames_max))
    size, last = 0, 0
    lost = [0] * len(runs)  # how many lost frames the run of each chain begins with
    for seq in heapq.merge(*runs):
        if seq == last:
            continue
        frame = archive.read(seq)
        if frame is None and archive.is_lost(seq) and len(repairs) < frames_max:
            last = seq
            for index, run in enumerate(runs):
                if run[lost[index] : lost[index] + 1] == [seq]:
                    lost[index] += 1
                    repairs.append(Repair(None, chains[index].key, seq))
            continue
        if frame is None:
            break
        if size and (size + len(frame.body) > bytes_max or len(repairs) >= frames_max):
            break
        last = seq
        size += len(frame.body)
        repairs.append(Repair(frame))
    return repairs


def _nothing_through(archive: Log, key: bytes, after: int, not_before_us: int) -> int:
    """Up to which number the chain has nothing for the asker: dropped, or older than wanted."""
    if not_before_us:
        after = 0  # an answer about a time is the same for every receiver
    through = max(after, archive.floor(key, after))
    if not_before_us:
        first = archive.first_since(key, not_before_us)
        if first is None:
            return max(through, archive.head(key))
        through = max(through, archive.last(key, first - 1))
    return through


@dataclass(eq=False)
class Origin:
    """The frames that we are the origin of."""

    disk: Disk
    outgoing: Sender
    forwarder: Forwarder
    own: OwnFrames
    notary: Notary
    repairs: int = 0  # frames sent again

    def __post_init__(self) -> None:
        self.log = self.disk.log
        self.tails = Tails(keep_ms=self.disk.keep_s * 1_000)
        self._checker = RunChecker()
        self._requested_since: Lately[BrokerId, int] = Lately(ASKING_MAX, kept_ms=ASKED_MS)

    def resume(self, now_ms: Millis) -> None:
        """Repeat the heads of the chains of an earlier run, too."""
        for key, head in self.log.chains():
            self.tails.made(key, head, now_ms)

    def write(self, batches: Sequence[Gathered], now_ms: Millis) -> list[Record] | None:
        """Log ``batches``, one record each; ``None`` when the log cannot be written."""
        records = []
        seq = self.log.next_seq
        made: dict[bytes, int] = {}
        for batch in batches:
            keys = filter_part(batch.route.keys)
            filter_keys = keys_in(keys)
            prevs = tuple(made.get(key) or self.log.head(key) for key in filter_keys)
            made.update(dict.fromkeys(filter_keys, seq))
            body = b"".join(batch.parts)
            records.append(Record(seq, batch.time_us, batch.count, keys, prevs, body))
            seq += 1
        if not self.disk.write_log(records):
            return None
        for key, head in made.items():
            self.tails.made(key, head, now_ms)
        return records

    def frame_of(self, record: Record, keys: bytes) -> Frame:
        """The frame to send for ``record``: with ``keys``, its own and those of destinations."""
        frame = self._addressed(self._frame(record), keys)
        self.notary.prove(frame)
        return frame

    def send_tails(self, now: Now) -> None:
        due = sorted(self.tails.due(now.ms))
        body = self.log.epoch.to_bytes(8, "big")
        for at in range(0, len(due), TAIL_CHAINS_MAX):
            chains = due[at : at + TAIL_CHAINS_MAX]
            keys = b"".join(key for key, _ in chains)
            all_keys, sends = self.forwarder.route_chains(keys)
            if not sends:
                continue
            epoch, seq = self.own.number()
            frame = self.own.label(TAIL_FLAG, epoch, seq, now.us, 0, keys, body)
            frame.chain = chain_bytes([head for _, head in chains])
            addressed = self._addressed(frame, all_keys)
            self.notary.prove(addressed)
            self.outgoing.send(addressed, 0, sends, (body,), len(body), now_ms=now.ms)

    def on_destinations_moved(self, brokers: AbstractSet[BrokerId], now_ms: Millis) -> None:
        """Repeat the heads of chains that ``brokers``, which have a new route, want."""
        for key in self.tails:
            if self.forwarder.leads_to(key, brokers):
                self.tails.hasten(key, now_ms)

    def on_request(self, request: RepairRequest, now: Now) -> None:
        """Send the requested frames back along the way the request came."""
        first, *rest = reversed(request.path)
        since_us = self.repeated_since_us(first, now.ms)
        if since_us:  # the neighbour still asks
            self._requested_since.put(first, since_us, now.ms)
        if request.asked_us:
            self._vouch(request, first, tuple(rest), now)
            return
        if request.epoch != self.log.epoch:
            return
        repairs = answer(self.log, request.chains)
        made_us = min((r.frame.time_us for r in repairs if r.frame is not None), default=0)
        if made_us:
            self._requested_since.put(first, min(made_us, since_us or made_us), now.ms)
        for index, repair in enumerate(repairs, 1):
            flags = CUSTODY_FLAG | REPAIR_FLAG
            if repair.frame is not None:
                frame = self._aged(self._frame(repair.frame, flags), now.us)
            else:
                flags |= VOID_FLAG
                epoch = Epoch(self.log.epoch)
                frame = self.own.label(flags, epoch, repair.through, 0, 0, repair.key, b"")
                frame.chain = repair.since_us.to_bytes(8, "big")
            self.notary.prove(frame)
            if index == len(repairs):
                frame.flags |= LAST_FLAG
            frame.route = tuple(rest)
            if not self.outgoing.send_repair(first, frame, now_ms=now.ms):
                return
            self.repairs += 1

    def repeated_since_us(self, neighbour: BrokerId, now_ms: Millis) -> int:
        """When the oldest frame was made that ``neighbour`` requested lately; 0: none."""
        return self._requested_since.get(neighbour, now_ms) or 0

    def _vouch(
        self, request: RepairRequest, first: BrokerId, route: tuple[BrokerId, ...], now: Now
    ) -> None:
        """Answer which of the numbers that ``request`` doubts exist, and which came before them."""
        doubted = dict(sorted((chain.key, chain.after) for chain in request.chains))
        epoch, top = Epoch(self.log.epoch), self.log.next_seq - 1
        flags = CUSTODY_FLAG | REPAIR_FLAG | WORD_FLAG
        frame = self.own.label(flags, epoch, top, now.us, 0, b"".join(doubted), b"")
        frame.chain = chain_bytes([self.log.last(key, upto) for key, upto in doubted.items()])
        self.notary.sign(frame, request.path[0], request.asked_us)
        frame.route = route
        self.outgoing.send_repair(first, frame, now_ms=now.ms)

    def made_since(self, keys: Sequence[bytes], since_us: int) -> list[int]:
        """Numbers of our own frames on ``keys`` since ``since_us``, ascending and bounded."""
        seqs: set[int] = set()
        for key in keys:
            first = self.log.first_since(key, since_us)
            if first is not None:
                seqs.update(self.log.select(key, first - 1, limit=AGAIN_FRAMES_MAX))
        return sorted(seqs)[:AGAIN_FRAMES_MAX]

    def frame_again(self, seq: int, now_us: int) -> Frame | None:
        """One of our own frames, without the publications that expired."""
        record = self.log.read(seq)
        return self._aged(self._frame(record), now_us) if record is not None else None

    def _addressed(self, frame: Frame, keys: bytes) -> Frame:
        """Give ``frame`` all ``keys``: its own, and those of destinations, which have no chains."""
        frame.chain += bytes(CHAIN_BYTES * (len(keys) // KEY_BYTES - frame.k))
        frame.keys = keys
        return frame

    def _frame(self, kept: Record, flags: int = CUSTODY_FLAG) -> Frame:
        epoch, count = Epoch(self.log.epoch), kept.publications
        frame = self.own.label(flags, epoch, kept.seq, kept.time_us, count, kept.keys, kept.body)
        frame.chain = chain_bytes(kept.prevs)
        return frame

    def _aged(self, frame: Frame, now_us: int) -> Frame:
        """``frame`` without the publications that expired since it was made."""
        age_s = (now_us - frame.origin_time_us) // 1_000_000
        if age_s > 0:
            run = bytearray(frame.body)
            places = self._checker.check(
                bytes(run), acknowledged=True, publications=frame.publications
            )
            alive = age_expiry(run, places, age_s=age_s)
            frame.body = memoryview(b"".join(run[start:end] for start, end, _, _ in alive))
            frame.publications = len(alive)
        return frame
