"""A receiver of frames on chains that overlap: what it delivers, and what it asks for again."""

from pathlib import Path

from federator.protocol.types import Millis
from tests.protocol.custody.archive import Archive
from tests.protocol.custody.test_custody import ORIGIN, A, B, C, Reader
from tests.transcripts import play, scenes

KEYS = {"a": A, "b": B, "c": C}
BEGIN_MS = Reader(Archive()).now_ms


class Stage:
    """An origin's archive, and a receiver that commands are for.

    ``make ab@90`` makes a frame on the chains a and b, at 90 s (else at 100 s, which is 110 s by
    the receiver's clock). Prints the numbers delivered, and of the receiver what changed: gaps,
    bytes held, when it asks next (ms from now), since when a frame is missing (ms from the begin).
    """

    def __init__(self):
        self.archive = Archive()
        self._receiver()

    def do(self, command, *words):
        before, delivered = self._state(), len(self.reader.delivered)
        answer = getattr(self, f"_{command}")(*words)
        if command == "receiver":
            return
        if numbers := self.reader.delivered[delivered:]:
            yield "delivers " + " ".join(map(str, numbers))
        if answer is not None:
            yield answer
        for name, value in self._state().items():
            if value != before[name]:
                yield f"{name} {value}"

    def _receiver(self, *bounds):
        options = {name: int(value) for name, value in (bound.split("=") for bound in bounds)}
        self.reader = Reader(self.archive, **options)

    def _restart(self, keys):
        """A new process, which knows what the journal says, and what its clients want."""
        positions = self.reader.receiver.positions()
        self.reader = Reader(self.archive, *(KEYS[key] for key in keys))
        self.reader.receiver.restore(positions, now_ms=self.reader.now_ms)

    def _wants(self, keys, since_s="0"):
        for key in keys:
            self.reader.receiver.want(KEYS[key], since_us=round(float(since_s) * 1_000_000))

    def _unwants(self, key):
        self.reader.receiver.unwant(KEYS[key])

    def _make(self, *frames):
        for frame in frames:
            keys, _, second = frame.partition("@")
            time_us = round(float(second or 100) * 1_000_000)
            self.archive.make(tuple(KEYS[key] for key in keys), time_us)

    def _take(self, *numbers):
        for number in numbers:
            self.reader.take(self.archive.frames[int(number) - 1])

    def _no_room(self, *numbers):
        """They come, and our broker takes nothing."""
        for number in numbers:
            self.reader.take(self.archive.frames[int(number) - 1], room=False)

    def _gone(self, through):
        """The origin dropped its frames through this one."""
        self.archive.gone = int(through)

    def _tail(self, keys):
        self.reader.tail(*(KEYS[key] for key in keys))

    def _ask(self):
        return f"asked {self.reader.ask()}"

    def _asks(self):
        """Ask now, and hear no answer."""
        asks = self.reader.receiver.asks(self.reader.now_ms)
        return f"asked {sum(len(ask.chains) for ask in asks)}"

    def _journal(self):
        places = {key: at[:2] for (_, key), at in self.reader.receiver.positions().items()}
        return " ".join(f"{name} {places[key]}" for name, key in KEYS.items() if key in places)

    def _settle(self):
        self.reader.settle()

    def _later(self, ms):
        self.reader.now_ms = Millis(self.reader.now_ms + int(ms))

    def _state(self):
        receiver, now_ms = self.reader.receiver, self.reader.now_ms
        due_ms, since_ms = receiver.next_deadline_ms(), receiver.missing_since_ms(ORIGIN)
        return {
            "gaps": receiver.gaps,
            "held": receiver.held_bytes,
            "asks in": None if due_ms is None else due_ms - now_ms,
            "missing since": None if since_ms is None else since_ms - BEGIN_MS,
            "followed": len(receiver),
            "duplicates": receiver.duplicates,
            "voids": receiver.voids,
        }


@scenes(Path(__file__).parent / "receiver.txt")
def test_transcript(path, number):
    play(path, number, Stage())
