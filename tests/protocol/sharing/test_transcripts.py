"""What is owed is sent until confirmed, given to others when its receiver is gone, and bounded."""

from pathlib import Path

from federator.protocol.sharing.ledger import Held, Ledger, Owed
from tests.protocol.sharing.test_ledger import GROUPS, SPANS
from tests.transcripts import play, scenes


class Stage:
    """A ledger. A command begins with the time in ms; ``2:1`` is the parcel 1 for broker 2.

    Prints what is sent or given up (``later`` with the time of each), and how many publications
    and bytes are kept, when that changed.
    """

    def __init__(self):
        self.ledger = Ledger(SPANS)

    def do(self, now_ms, command, *words):
        before = self._state()
        yield from getattr(self, f"_{command}")(int(now_ms), *words) or ()
        if (state := self._state()) != before:
            yield state

    def _state(self):
        return f"keeps {len(self.ledger)} in {self.ledger.bytes} bytes"

    def _owe(self, now_ms, to, size="10"):
        run = b"x" * int(size)
        sends = self.ledger.owe(int(to), GROUPS, run, 1, since_ms=now_ms, now_ms=now_ms)
        return ["no room"] if sends is None else sent(sends)

    def _confirm(self, now_ms, to, *ranges):
        numbers = [tuple(map(int, each.split("-"))) for each in ranges]
        return sent(self.ledger.confirm(int(to), numbers, now_ms=now_ms))

    def _later(self, now_ms):
        while (at_ms := self.ledger.next_deadline_ms()) is not None and at_ms <= now_ms:
            sends, lost = self.ledger.on_deadline(now_ms=at_ms)
            yield from (f"{at_ms}: {what}" for what in sent(sends))
            for each in lost:
                lost_name = name(each) if isinstance(each, Owed) else each.run[:1].decode()
                yield f"{at_ms}: gives up {lost_name}"

    def _gone(self, now_ms, to):
        return [f"leaves {name(owed)}" for owed in self.ledger.gone(int(to))]

    def _hold(self, now_ms, letter, size):
        held = Held(GROUPS, letter.encode() * int(size), 2, now_ms)
        return [] if self.ledger.hold(held, now_ms=now_ms) else ["no room"]

    def _take_held(self, now_ms):
        return [f"takes {held.run[:1].decode()}" for held in self.ledger.take_held()]


def name(owed):
    return f"{owed.to}:{owed.number}"


def sent(sends):
    names = [name(owed) for owed in sends]
    return [f"sends {' '.join(names)}"] if names else []


@scenes(*Path(__file__).parent.glob("*.txt"))
def test_transcript(path, number):
    play(path, number, Stage())
