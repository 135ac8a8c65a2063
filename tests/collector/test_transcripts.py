"""What a collector asks for, takes and lands; and which brokers it connects to."""

from pathlib import Path

from federator.collector.directory import Dial, Directory
from federator.protocol.messages.guide import Guide, GuideBroker
from tests.collector.world import START_US, ModelAgent, World, line
from tests.transcripts import play, scenes

HERE = Path(__file__).parent
HOUR_US = 3_600_000_000
SHOWN_MAX = 6


class Reading:
    """Broker 3's agent, a collector, and the wire between them.

    What an agent does: ``flush 20``, ``drops_all_but 10``, ``loses_disk``. ``silence 400`` passes
    so many ms in which every answer is lost, ``run 400`` others. ``settle`` heals all, goes on
    until the collector has landed what there is, checks it, and prints how far, and what is lost.
    """

    def __init__(self):
        self.agent = ModelAgent(3)
        self.world = World(self.agent)

    def do(self, command, *words):
        asked, notices = len(self.world.asked), len(self.world.notices)
        yield from getattr(self, f"_{command}")(*words) or ()
        if command not in ("settle", "flush_slowly", "forged_spools"):
            yield from (f"asks {each.first}-{each.last}" for each in self.world.asked[asked:])
        yield from (note.name for note in self.world.notices[notices:])

    def _flush(self, count="1", rows="1"):
        for _ in range(int(count)):
            self.agent.flush(rows=int(rows))

    def _heads(self):
        self.world.heads()

    def _run(self, ms):
        self.world.run(int(ms))

    def _silence(self, ms="20"):
        self.world.run(int(ms), fate=lambda: [])

    def _silence_of_a_minute(self):
        self.world.run(60_000, fate=lambda: [])
        count = len(self.world.asked)
        del self.world.asked[:]
        yield "asks every 1.5 s at last" if 35 < count < 60 else f"asks {count} times"

    def _connection(self, what):
        {"ends": self.world.collection.on_down, "begins": self.world.collection.on_up}[what](3)
        self.world.step()

    def _drops_all_but(self, count):
        self.agent.batches_max = int(count)

    def _damaged(self, *numbers):
        self.agent.damaged = {int(number) for number in numbers}

    def _garbled(self, number):
        self.agent.written[self.agent.spool][int(number)] = b'{"v":1,"tab\n'

    def _in_its_second_hour(self, *numbers):
        for number in map(int, numbers):
            at_us = (START_US // HOUR_US + 1) * HOUR_US
            text = line(3, self.agent.spool, number, 0, at_us=at_us)
            self.agent.written[self.agent.spool][number] = text

    def _answers_without_it(self):
        self.world.hear(3, self.agent.again(1, 0))

    def _loses_disk(self):
        self.world.on_wire.clear()
        self.agent.lose_disk()

    def _head_of(self, first, last):
        """A head that says so, and nothing else does."""
        before = self.agent.first, self.agent.last
        self.agent.first, self.agent.last = int(first), int(last)
        self.world.heads()
        self.agent.first, self.agent.last = before

    def _forged_spools(self, count):
        for claim in range(1, int(count) + 1):
            forged = ModelAgent(3)
            forged.spool, forged.last = f"{claim:016x}", 10**18
            self.world.head(forged.head())
            self.world.step()
        yield f"{len(list(self.world.collection.positions()))} spools are followed"

    def _flush_slowly(self, count):
        """While the disk of the collector does not work."""
        self.world.disk_works = False
        for number in range(int(count)):
            self.agent.flush(rows=3)
            if number % 5 == 0:
                self.world.heads()
                self.world.run(100)
        (position,) = self.world.collection.positions()
        yield f"landed through {position.landed}, {position.bytes // 1_000} kB in memory"

    def _stop(self):
        world = self.world
        (order,) = world.collection.due(now_ms=world.now_ms, all_=True)
        world.landed[order.key].append(order)
        world.collection.on_landed(order)
        yield f"landed {order.first}-{order.last}, nothing in memory: {world.collection.settled}"

    def _settle(self):
        self.world.settle()
        lost = self.world.check()
        for key, pieces in self.world.landed.items():
            spans = [f"{piece.first}-{piece.last}" for piece in pieces if not piece.gap]
            files = " ".join(spans) if len(spans) <= SHOWN_MAX else f"all in {len(spans)} files"
            yield f"landed {files}" + ("" if key[1] == self.agent.spool else " of the lost disk")
            gaps = [piece for piece in pieces if piece.gap]
            yield from (f"{piece.first}-{piece.last} {piece.gap}" for piece in gaps)
            assert {n for gap in gaps for n in range(gap.first, gap.last + 1)} == {*lost[key]}

    def _asked(self):
        yield " ".join(f"{each.first}-{each.last}" for each in self.world.asked)

    def _gap_record(self):
        (piece,) = (piece for pieces in self.world.landed.values() for piece in pieces if piece.gap)
        yield b"".join(piece.lines).decode().strip()


class Finding:
    """A directory; a guide is of broker 1. Addresses are words."""

    def __init__(self):
        self.failing = set()

    def do(self, command, *words):
        yield from getattr(self, f"_{command}")(*words) or ()

    def _named(self, *urls):
        self.directory = Directory([url for url in urls if url != "--only"], only="--only" in urls)

    def _is(self, url, broker):
        believed, orders = self.directory.on_identity(url, int(broker))
        yield "believed" if believed else "not believed"
        yield from (f"hang up {order.url}" for order in orders)

    def _guide(self, *brokers):
        pairs = [word.split("=") for word in brokers]
        guide = Guide(1, "fed", 1, 1, 1, 1, tuple(GuideBroker(int(id), at) for id, at in pairs))
        for order in self.directory.on_guide(guide, failing=self.failing):
            dials = isinstance(order, Dial)
            yield f"dial {order.broker} {order.url}" if dials else f"hang up {order.url}"

    def _fails(self, url):
        self.failing = {url}

    def _of_no_use(self, broker):
        self.directory.on_failed(int(broker))

    def _down(self, url):
        self.directory.on_down(url)

    def _unreached(self):
        yield " ".join(map(str, self.directory.unreached))


@scenes(HERE / "reading.txt")
def test_reading(path, number):
    play(path, number, Reading())


@scenes(HERE / "finding.txt")
def test_finding(path, number):
    play(path, number, Finding())
