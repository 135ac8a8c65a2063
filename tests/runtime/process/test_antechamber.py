"""Strangers have so much room and no more, and who is silent gives way to who comes."""

from pathlib import Path

from federator.gateway.metrics import GatewayCounters
from federator.runtime.process.antechamber import Antechamber
from tests.transcripts import play, scenes

ROOM, SHARE, BYTES = 10, 4, 1_000


class Stage:
    """An antechamber for ten connections, four of one address, with 1,000 bytes together.

    ``enter 1.2.3.4 a b`` lets a and b in; prints whose way ends, and at the end of a line how many
    are unfinished, and with how many bytes in sum.
    """

    def __init__(self):
        self.counters, self.gone, self.places = GatewayCounters(), [], {}
        self.antechamber = Antechamber(
            self.counters,
            unfinished_max=ROOM,
            per_address_max=SHARE,
            bytes_max=BYTES,
            shared=["10.0.0.0/8", "::1"],
        )

    def do(self, command, *words):
        gave_way = self.counters.gave_way
        yield from getattr(self, f"_{command}")(*words) or ()
        yield from self.gone
        assert self.counters.gave_way - gave_way == len(self.gone)
        self.gone.clear()

    def _enter(self, host, *names):
        for name in names:
            over_share = self.counters.over_share
            place = self.antechamber.enter(host, lambda name=name: self._goes(name))
            self.places[name] = place
            if place is None:
                yield f"{name} is refused"
            assert self.counters.over_share - over_share == (place is None)

    def _goes(self, name):
        self.gone.append(f"{name} gives way")

    def _finish(self, *names):
        for name in names:
            self.places[name].finish(lambda name=name: self._goes(f"{name}, which waits,"))

    def _begin(self, name):
        self.places[name].begin()

    def _receive(self, count, *names):
        for name in names:
            self.places[name].receive(int(count))

    def _leave(self, *names):
        for name in names:
            self.places[name].leave()

    def _state(self):
        yield f"{len(self.antechamber)} unfinished, {self.antechamber.bytes} bytes"


@scenes(Path(__file__).with_name("antechamber.txt"))
def test_transcript(path, number):
    play(path, number, Stage())
