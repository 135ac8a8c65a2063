"""What an origin made, in one list: a log that is too simple to be wrong."""

from bisect import bisect_right
from dataclasses import dataclass, field

from federator.protocol.custody.ports import Record
from federator.protocol.forwarding.frames import keys_in


def links(record: Record) -> dict[bytes, int]:
    """The frame before ``record`` on each of its chains."""
    return dict(zip(keys_in(record.keys), record.prevs, strict=True))


@dataclass
class Archive:
    """``gone``: frames up to here were dropped. ``lost``: these are damaged."""

    frames: list[Record] = field(default_factory=list)
    gone: int = 0
    lost: set[int] = field(default_factory=set)

    def make(self, keys: tuple[bytes, ...], time_us: int = 100_000_000) -> Record:
        prevs = tuple(self.head(key) for key in keys)
        frame = Record(len(self.frames) + 1, time_us, 1, b"".join(keys), prevs, b"body")
        self.frames.append(frame)
        return frame

    def held(self) -> list[Record]:
        return self.frames[self.gone :]

    def read(self, seq: int) -> Record | None:
        held = self.gone < seq <= len(self.frames) and seq not in self.lost
        return self.frames[seq - 1] if held else None

    def is_lost(self, seq: int) -> bool:
        return seq in self.lost

    def chain(self, key: bytes, upto: int | None = None) -> list[int]:
        return [f.seq for f in self.frames[:upto] if key in keys_in(f.keys)]

    def last(self, key: bytes, upto: int) -> int:
        return max(self.chain(key, upto), default=0)

    def head(self, key: bytes) -> int:
        return max(self.chain(key), default=0)

    def select(self, key: bytes, after: int, *, limit: int) -> list[int]:
        chain = [seq for seq in self.chain(key) if seq > self.gone]
        return chain[bisect_right(chain, after) :][:limit]

    def floor(self, key: bytes, after: int) -> int:
        return max([after, *self.chain(key, self.gone)])

    def first_since(self, key: bytes, time_us: int) -> int | None:
        """The clock may go back: a frame counts as made when the newest before it was."""
        latest_us = 0
        for frame in self.frames:
            latest_us = max(latest_us, frame.time_us)
            if frame.seq > self.gone and key in keys_in(frame.keys) and latest_us >= time_us:
                return frame.seq
        return None
