"""Which broker is measured next, and since when a link is up, tried, or given up."""

from pathlib import Path

from federator.protocol.links.links import Links
from federator.protocol.links.neighbour import LinkConnection, Neighbour
from federator.protocol.parameters import Parameters
from federator.protocol.topology.distances import MEASURED_MAX, Distances
from federator.protocol.topology.peer_link_history import PeerLinkHistory
from tests.transcripts import play, scenes

OTHERS = range(2, 12)


class Measuring:
    """The measurements of broker 1, with a pause of 100 ms.

    ``choose 2-11`` prints the broker to measure now; ``measured`` stores a round trip; ``rounds``
    measures all of ``OTHERS`` so often, as each of some brokers, and prints how many orders there
    were; ``known`` prints round trips, and ``may`` whether one may begin.
    """

    def __init__(self):
        self.distances = Distances(1)

    def do(self, command, *words):
        numbers = [None if word == "none" else int(word) for word in words]
        match command:
            case "choose":
                now_ms, *ids = numbers
                yield str(self.distances.choose(ids, pause_ms=100, now_ms=now_ms))
            case "measured":
                self.distances.on_measured(*numbers)
            case "rounds":
                rounds, *brokers = numbers
                yield f"{len(set(self._orders(rounds, brokers)))} orders"
            case "known":
                yield ", ".join(str(self.distances.far_ms(id)) for id in numbers)
            case "may":
                yield "may begin" if self.distances.may_measure(*numbers) else "waits"
            case "crowd":
                for id in range(MEASURED_MAX + 1):
                    self.distances.choose([id], pause_ms=0, now_ms=0)
                    self.distances.on_measured(id, 7)

    def _orders(self, rounds, brokers):
        for broker in brokers:
            distances = Distances(broker)
            for _ in range(rounds):
                order = []
                for _ in OTHERS:
                    order.append(distances.choose(OTHERS, pause_ms=0, now_ms=0))
                    distances.on_measured(order[-1], 7)
                assert sorted(order) == list(OTHERS)
                yield tuple(order)


class History:
    """The links of broker 1 to others, remembered for 100 ms; ``T update`` reads the present ones.

    ``link 2 up b2`` is a link with broker 2 at an address. ``T known 2`` prints what is known of
    broker 2, and ``parted`` whether it was given up within so many ms.
    """

    def __init__(self):
        self.links = Links(1, 1, "b1", Parameters())
        self.history = PeerLinkHistory(cool_ms=100)

    def do(self, now_ms, command, *words):
        now_ms, history = int(now_ms), self.history
        id = int(words[0]) if words else 0
        match command:
            case "update":
                history.update(self.links, now_ms)
                yield self._state()
            case "link":
                _, state, address = words
                self.links.connections[id] = LinkConnection(id, address, id, 1, neighbour=id)
                self.links.neighbours[id] = Neighbour(id, 1, 0, conn=id, up=state == "up")
            case "dialled":
                history.on_dialled(id, words[1], now_ms)
            case "unreachable":
                history.passed_over[id] = int(words[1])
            case "part":
                yield "call it off" if history.part(id, now_ms) else "it dialled us"
            case "parted":
                within = history.parted_lately(id, int(words[1]), now_ms)
                yield "lately" if within else "not lately"
            case "forgive":
                history.forgive(id)
            case "known":
                yield "known" if history.knows(id) else "unknown"

    def _state(self):
        history = self.history
        found = {
            "up since": history.up_ms,
            "tried since": history.idle_ms,
            "fallen": history.fallen,
            "dialled": history.dials,
            "passed over": history.passed_over,
        }
        return ", ".join(f"{name} {kept}" for name, kept in found.items() if kept) or "nothing"


STAGES = {"distances": Measuring, "history": History}


@scenes(*Path(__file__).parent.glob("*.txt"))
def test_transcript(path, number):
    play(path, number, STAGES[path.stem]())
