"""PUBLISH packets of one length: built and read a thousand at a time, as rows of a numpy record.

A load generator that touches messages one by one in Python measures itself. Here every packet of
a stream has the same topic and payload size, so a read of any number of packets is a table: the
sequence numbers are one column, the times another, and checking a read costs the same few array
operations whether it brought ten messages or ten thousand.

Source: OASIS MQTT 3.1.1, sections 3.3 (PUBLISH) and 3.4 (PUBACK).
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

STAMP_BYTES: Final = 20
REMAINING_LENGTH_MAX: Final = 127
"""Longer packets need a second length byte; nothing here is that long."""

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
        remaining = 2 + len(self.topic.encode()) + 2 * (self.qos > 0) + self.payload_bytes
        if remaining > REMAINING_LENGTH_MAX:
            raise ValueError(f"packet of {remaining} bytes, at most {REMAINING_LENGTH_MAX} wanted")
        columns: list[tuple[str, str] | tuple[str, str, tuple[int]]] = [
            ("head", "u1", (4 + len(self.topic.encode()),))
        ]
        if self.qos:
            columns.append(("packet_id", ">u2"))
        columns += [("run", ">u4"), ("seq", ">u8"), ("sent_ns", ">u8")]
        columns.append(("filler", "u1", (self.payload_bytes - STAMP_BYTES,)))
        object.__setattr__(self, "row", np.dtype(columns))

    @property
    def packet_bytes(self) -> int:
        """Bytes of each packet."""
        return self.row.itemsize

    @property
    def head(self) -> bytes:
        """What every packet begins with."""
        topic = self.topic.encode()
        first = _PUBLISH | self.qos << 1
        return bytes([first, self.packet_bytes - 2]) + len(topic).to_bytes(2, "big") + topic

    def blank(self, count: int, run: int) -> Rows:
        """``count`` packets of ``run`` that lack their numbers and times."""
        rows = np.zeros(count, self.row)
        rows["head"] = np.frombuffer(self.head, np.uint8)
        rows["run"] = run
        rows["filler"] = _FILLER
        return rows

    def number(self, rows: Rows, first: int, sent_ns: int) -> None:
        """Write numbers from ``first`` on and the time into ``rows``."""
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
