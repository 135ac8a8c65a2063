"""A pair of MQTT connections that load is put on, and which publications of a run arrived over it.

Plain sockets, as little as MQTT 3.1.1 asks for, no client library: nothing here may be the limit.
The subscriber acknowledges at once what TCP delivers (TCP_QUICKACK): Mosquitto leaves Nagle's
algorithm on, and would otherwise wait 40 ms for the kernel's delayed acknowledgement.

A load generator that touches messages one by one in Python measures itself. Here PUBLISH packets
are of one length, built and read a thousand at a time, as rows of a numpy record: every packet of a
stream has the same topic and payload size, so a read of any number of packets is a table: the
sequence numbers are one column, the times another, and checking a read costs the same few array
operations whether it brought ten messages or ten thousand. In order and complete is the rule, and
costs one comparison of arrays; anything else takes the slow way, which tells losses, duplicates,
changes of order and foreign messages apart.

Source: OASIS MQTT 3.1.1, sections 3.1 (CONNECT), 3.3 (PUBLISH), 3.4 (PUBACK), 3.8 (SUBSCRIBE), 4.3
(QoS).
"""

import contextlib
import socket
import time
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from federator.errors import LinkError
from federator.protocol.forwarding.publications import variable_byte_integer

STAMP_BYTES: Final = 20

PACKET_ID_MAX: Final = 65_535
DUP: Final = 0x08

_PUBLISH = 0x30
_FILLER = ord(".")

PUBACK: Final = np.dtype([("head", "u1", (2,)), ("packet_id", ">u2")])
_PUBACK_HEAD = (0x40, 2)

Rows = NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Layout:
    """The one shape of all PUBLISH packets of a stream."""

    topic: str  # published and subscribed
    qos: int  # 0 or 1
    payload_bytes: int  # at least ``STAMP_BYTES``
    # One packet: ``head`` (bytes before the packet identifier), ``packet_id`` with QoS 1, ``run``,
    # ``seq`` and ``sent_ns`` (monotonic), ``filler``.
    row: np.dtype[np.void] = field(init=False)

    def __post_init__(self) -> None:
        if self.payload_bytes < STAMP_BYTES:
            raise ValueError(f"payload of {self.payload_bytes} bytes, {STAMP_BYTES} hold a stamp")
        columns: list[tuple[str, str] | tuple[str, str, tuple[int]]] = [
            ("head", "u1", (len(self.head),))
        ]
        if self.qos:
            columns.append(("packet_id", ">u2"))
        columns += [("run", ">u4"), ("seq", ">u8"), ("sent_ns", ">u8")]
        columns.append(("filler", "u1", (self.payload_bytes - STAMP_BYTES,)))
        object.__setattr__(self, "row", np.dtype(columns))

    @property
    def packet_bytes(self) -> int:
        return self.row.itemsize

    @property
    def head(self) -> bytes:
        topic = self.topic.encode()
        remaining = 2 + len(topic) + 2 * (self.qos > 0) + self.payload_bytes
        first = bytes([_PUBLISH | self.qos << 1]) + variable_byte_integer(remaining)
        return first + len(topic).to_bytes(2, "big") + topic

    def blank(self, count: int, run: int) -> Rows:
        """``count`` packets of ``run`` that lack their numbers and times."""
        rows = np.zeros(count, self.row)
        rows["head"] = np.frombuffer(self.head, np.uint8)
        rows["run"] = run
        rows["filler"] = _FILLER
        return rows

    def number(self, rows: Rows, first: int, sent_ns: int) -> None:
        seq = np.arange(first, first + len(rows), dtype=np.uint64)
        rows["seq"] = seq
        rows["sent_ns"] = sent_ns
        if self.qos:
            rows["packet_id"] = seq % PACKET_ID_MAX + 1

    def read(self, data: memoryview) -> Rows:
        """The whole packets at the beginning of ``data``, without copying."""
        return np.frombuffer(data, self.row, len(data) // self.packet_bytes)

    def in_step(self, rows: Rows) -> bool:
        """Whether all rows are packets of this layout; a retransmission (DUP) is one."""
        heads = rows["head"]
        expected = np.frombuffer(self.head, np.uint8)
        first_matches = ((heads[:, 0] & ~np.uint8(DUP)) == expected[0]).all()
        return bool(first_matches and (heads[:, 1:] == expected[1:]).all())


def topics(topic: str, pairs: int) -> list[str]:
    """A topic for each pair of clients; a lone one has ``topic`` as it is."""
    return [topic] if pairs == 1 else [f"{topic}/{number}" for number in range(pairs)]


def acknowledgements(packet_ids: NDArray[np.uint16]) -> bytes:
    """A PUBACK (MQTT 3.1.1) for each of ``packet_ids``, back to back."""
    rows = np.empty(len(packet_ids), PUBACK)
    rows["head"] = _PUBACK_HEAD
    rows["packet_id"] = packet_ids
    return rows.tobytes()


PUBLICATIONS_MAX = 1 << 27
"""Bounds the map of what arrived at a byte per publication."""


class Ledger:
    """Counts the arrivals of one run.

    Attributes:
        run: Its number.
        received: Publications that arrived, each counted once.
        duplicates: Copies beyond the first.
        disordered: First copies that came after a later publication.
        foreign: Messages of other runs, or with numbers never published.
    """

    def __init__(self, run: int) -> None:
        self.run = run
        self.received = self.duplicates = self.disordered = self.foreign = 0
        self._expected = 0
        self._seen = np.zeros(1 << 16, np.bool_)

    def lost(self, sent: int) -> int:
        return sent - self.received

    def take(self, runs: NDArray[np.uint32], seqs: NDArray[np.uint64], *, sent: int) -> None:
        """Count one read.

        ``runs`` and ``seqs`` are of each message, in the order of arrival; ``sent`` publications
        left so far, numbered from 0.
        """
        count = len(seqs)
        end = self._expected + count
        in_order = end <= sent and bool((runs == self.run).all())
        if in_order and np.array_equal(seqs, np.arange(self._expected, end, dtype=np.uint64)):
            self._make_room(end)
            self._seen[self._expected : end] = True
            self._expected = end
            self.received += count
            return
        ours = seqs[(runs == self.run) & (seqs < sent)].astype(np.int64)
        self.foreign += count - len(ours)
        self._take_disorderly(ours)

    def _take_disorderly(self, seqs: NDArray[np.int64]) -> None:
        if not len(seqs):
            return
        self._make_room(int(seqs.max()) + 1)
        _, first_at = np.unique(seqs, return_index=True)
        first_copies = seqs[np.sort(first_at)]
        new = first_copies[~self._seen[first_copies]]
        self._seen[new] = True
        self.received += len(new)
        self.duplicates += len(seqs) - len(new)
        if len(new):
            before = np.maximum.accumulate(np.concatenate(([self._expected - 1], new[:-1])))
            self.disordered += int((new < before).sum())
            self._expected = max(self._expected, int(new.max()) + 1)

    def _make_room(self, end: int) -> None:
        size = len(self._seen)
        if end <= size:
            return
        if end > PUBLICATIONS_MAX:
            raise ValueError(f"publication {end}, at most {PUBLICATIONS_MAX} in a run")
        grown = np.zeros(max(end, 2 * size), np.bool_)
        grown[:size] = self._seen
        self._seen = grown


CONNECT_TIMEOUT_S: Final = 10.0
READ_BYTES_MAX: Final = 1 << 20
ROWS_MAX: Final = 1 << 14
ROWS_BYTES_MAX: Final = 1 << 23
"""Publications prepared at a time."""


def open_connection(
    host: str, port: int, *, client_id: str, subscribe: str | None, qos: int
) -> socket.socket:
    """A non-blocking socket on which CONNECT, and SUBSCRIBE if wanted, were answered well.

    Raises ``LinkError``: they were not, or the broker cannot be reached.
    """
    try:
        with contextlib.ExitStack() as undo:
            link = undo.enter_context(socket.create_connection((host, port), CONNECT_TIMEOUT_S))
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            name = _text(client_id)
            link.sendall(_packet(0x10, b"\0\x04MQTT\x04\x02\0\0" + name))  # clean, no keep-alive
            _expect(link, b"\x20\x02\0\0", "CONNECT")
            if subscribe is not None:
                link.sendall(_packet(0x82, b"\0\x01" + _text(subscribe) + bytes([qos])))
                _expect(link, b"\x90\x03\0\x01" + bytes([qos]), "SUBSCRIBE")
            link.setblocking(False)
            undo.pop_all()
    except OSError as error:
        raise LinkError(f"load generator: {host}:{port}: {error}") from error
    return link


class Wire:
    """One publisher and one subscriber of the same topic, and one run at a time between them.

    Both sockets are connected and do not block.

    Attributes:
        sent: Publications of this run handed to the kernel, wholly or in part.
        latest_ns: Monotonic time of the latest arrival.
    """

    def __init__(self, layout: Layout, publisher: socket.socket, subscriber: socket.socket) -> None:
        self.publisher = publisher
        self.subscriber = subscriber
        self.layout = layout
        self.sent = 0
        self.acknowledged = 0
        self.latest_ns = 0
        self.ledger = Ledger(0)
        rows = max(1, min(ROWS_MAX, ROWS_BYTES_MAX // layout.packet_bytes))
        self._rows = layout.blank(rows, 0)
        self._unsent = memoryview(b"")
        self._unacknowledged = b""
        self._buffer = memoryview(bytearray(READ_BYTES_MAX + 2 * layout.packet_bytes))
        self._filled = 0
        self._used = 0  # of what is filled, by the rows last returned
        self._acks = bytearray(READ_BYTES_MAX)
        self._acks_left = 0

    @classmethod
    def connect(
        cls,
        layout: Layout,
        *,
        publish_at: tuple[str, int],
        subscribe_at: tuple[str, int],
        name: str,
    ) -> Self:
        """Connect both; ``name`` distinguishes the client ids of several pairs."""
        subscriber = open_connection(
            *subscribe_at, client_id=f"{name}-subscriber", subscribe=layout.topic, qos=layout.qos
        )
        publisher = open_connection(
            *publish_at, client_id=f"{name}-publisher", subscribe=None, qos=layout.qos
        )
        return cls(layout, publisher, subscriber)

    @property
    def outstanding(self) -> int:
        return self.sent - self.ledger.received

    @property
    def idle(self) -> bool:
        acknowledged = not self.layout.qos or self.acknowledged >= self.sent
        return not self._unsent and not self.outstanding and acknowledged

    def begin(self, run: int) -> None:
        """Start a run; what still arrives of earlier ones is foreign to it."""
        self.ledger = Ledger(run)
        self.sent = self.acknowledged = 0
        self._unsent = memoryview(bytes(self._unsent))  # of an earlier run, in rows of this one
        self._rows["run"] = run

    def send(self, count: int) -> None:
        """Publish up to ``count`` more, as far as the kernel takes them."""
        if not self._flush():
            return
        rows = self._rows[:count]
        self.layout.number(rows, self.sent, time.monotonic_ns())
        self.sent += len(rows)
        self._unsent = rows.view(np.uint8).data
        self._flush()

    def _flush(self) -> bool:
        while self._unsent:
            try:
                self._unsent = self._unsent[self.publisher.send(self._unsent) :]
            except BlockingIOError:
                return False
        return True

    def receive(self) -> Rows:
        """Read once, count what came, acknowledge it; the rows are valid until the next call.

        Raises ``LinkError``: the broker hung up, or sent what we never subscribed.
        """
        empty = self.layout.read(memoryview(b""))
        self._collect_acknowledgements()
        self._send_acknowledgements()
        if self._used:
            left = self._filled - self._used
            self._buffer[:left] = bytes(self._buffer[self._used : self._filled])
            self._filled, self._used = left, 0
        try:
            count = self.subscriber.recv_into(self._buffer[self._filled :])
        except BlockingIOError:
            return empty
        if not count:
            raise LinkError("the broker closed the subscriber's connection")
        self.latest_ns = time.monotonic_ns()
        self.subscriber.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        self._filled += count
        rows = self.layout.read(self._buffer[: self._filled])
        if not self.layout.in_step(rows):
            raise LinkError("the broker sent packets that are not ours")
        self.ledger.take(rows["run"], rows["seq"], sent=self.sent)
        if self.layout.qos:
            self._unacknowledged += acknowledgements(rows["packet_id"])
            self._send_acknowledgements()
        self._used = len(rows) * self.layout.packet_bytes
        return rows

    def _send_acknowledgements(self) -> None:
        if self._unacknowledged:
            try:
                taken = self.subscriber.send(self._unacknowledged)
            except BlockingIOError:
                return
            self._unacknowledged = self._unacknowledged[taken:]

    def _collect_acknowledgements(self) -> None:
        if not self.layout.qos:
            return
        try:
            count = self.publisher.recv_into(memoryview(self._acks)[self._acks_left :])
        except BlockingIOError:
            return
        if not count:
            raise LinkError("the broker closed the publisher's connection")
        filled = self._acks_left + count
        acks = np.frombuffer(self._acks, PUBACK, filled // PUBACK.itemsize)
        if not (acks["head"] == _PUBACK_HEAD).all():
            raise LinkError("the broker sent the publisher something else than PUBACK")
        self.acknowledged += len(acks)
        used = len(acks) * PUBACK.itemsize
        self._acks_left = filled - used
        self._acks[: self._acks_left] = self._acks[used:filled]

    def close(self) -> None:
        for link in (self.publisher, self.subscriber):
            with contextlib.suppress(OSError), link:
                link.settimeout(1.0)
                link.sendall(b"\xe0\0")


def _text(value: str) -> bytes:
    encoded = value.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def _packet(first: int, body: bytes) -> bytes:
    assert len(body) <= 127, "one length byte"
    return bytes([first, len(body)]) + body


def _expect(link: socket.socket, wanted: bytes, what: str) -> None:
    got = b""
    while len(got) < len(wanted):
        more = link.recv(len(wanted) - len(got))
        if not more:
            break
        got += more
    if got != wanted:
        raise LinkError(f"load generator: {what} was answered {got.hex(' ')}")
