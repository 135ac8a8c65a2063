"""Agents that are models of what docs/metrics.md promises, and a wire between them and a collection
that loses, repeats and reorders what is on it.
"""

import json
from collections import defaultdict

from federator.collector.collection import Collection, Question
from federator.collector.position import Piece, ReadingParameters
from federator.errors import DecodeError
from federator.protocol.telemetry.reader import Pace
from federator.protocol.telemetry.records import encode as encode_record
from federator.protocol.telemetry.replay import Again, Ask, Head, decode_head

FEDERATION = "fed"
START_US = 1_700_000_000_000_000
PARAMETERS = ReadingParameters(
    FEDERATION,
    Pace(window_max=8, answer_ms=500, retry_ms=50, retry_max_ms=1_000),
    rotate_bytes=2_000,
    rotate_ms=1_000,
    land_retry_ms=100,
)


def line(broker, spool, batch, row, *, at_us=None, **more):
    record = {
        "v": 1,
        "table": "agents",
        "federation": FEDERATION,
        "broker": broker,
        "epoch": 7,
        "spool": spool,
        "batch": batch,
        "row": row,
        "at_us": START_US + batch * 1_000_000 if at_us is None else at_us,
        "window_ms": 1000,
        **more,
    }
    return json.dumps(record).encode() + b"\n"


class ModelAgent:
    """A broker's agent: a numbered log, bounded, whose disk may be lost.

    Attributes:
        written: Every batch it ever had, by spool.
        damaged: Batches that it holds and cannot give.
    """

    def __init__(self, broker, *, batches_max=10**9, answer_batches=3):
        self.broker = broker
        self.batches_max = batches_max
        self.answer_batches = answer_batches
        self.written = defaultdict(dict)
        self.damaged = set()
        self.disks = 0
        self.lose_disk()

    def lose_disk(self):
        self.disks += 1
        self.spool = f"{self.broker:08x}{self.disks:08x}"
        self.first, self.last = 1, 0

    def flush(self, rows=1):
        self.last += 1
        lines = [line(self.broker, self.spool, self.last, row) for row in range(rows)]
        self.written[self.spool][self.last] = b"".join(lines)
        self.first = max(self.first, self.last - self.batches_max + 1)

    def head(self):
        head = Head(broker=self.broker, spool=self.spool, first=self.first, last=self.last, at_us=0)
        return encode_record(head)

    def answer(self, ask: Ask):
        """The messages, in order. Of a spool that went with its disk it has nothing."""
        if ask.spool != self.spool:
            empty = Again(
                spool=ask.spool,
                batch_first=ask.first,
                batch_last=ask.first - 1,
                held_first=1,
                held_last=0,
            )
            return [encode_record(empty) + b"\n"]
        first, last = ask.first, min(ask.last, self.last)
        messages = []
        while first <= last:
            through = min(last, max(first, self.first) + self.answer_batches - 1)
            span = range(max(first, self.first), through + 1)
            held = [number for number in span if number not in self.damaged]
            lines = b"".join(self.written[self.spool][n] for n in held)
            messages.append(self.again(first, through) + lines)
            first = through + 1
        return messages or [self.again(ask.first, ask.first - 1)]

    def again(self, first, last, **other):
        fields = {
            "spool": self.spool,
            "batch_first": first,
            "batch_last": last,
            "held_first": self.first,
            "held_last": self.last,
        }
        return encode_record(Again(**fields | other)) + b"\n"


class World:
    """A collector and its landing folder, agents, and time.

    Attributes:
        landed: Pieces by spool, in the order of landing: what file names would tell.
        on_wire: Answers on their way: when they come, broker, payload.
    """

    def __init__(self, *agents, parameters=PARAMETERS, bytes_max=10**9, disk_ms=0):
        self.agents = {agent.broker: agent for agent in agents}
        self.landed = defaultdict(list)
        self.on_wire = []
        self.now_ms = 0
        self.disk_ms = disk_ms
        self.disk_works = True
        self.asked = []
        self.notices = []
        self._parameters, self._bytes_max = parameters, bytes_max
        self.start()

    def start(self):
        """Begin from the landed files; what was in memory is gone."""
        self.landing = []
        ends = {key: pieces[-1].last for key, pieces in self.landed.items()}
        self.collection = Collection(ends, self._parameters, bytes_max=self._bytes_max)
        for broker in self.agents:
            self.collection.on_up(broker)
        self.on_wire.clear()  # answers to the last run's token

    def heads(self):
        for agent in self.agents.values():
            self.head(agent.head())

    def head(self, payload):
        self.notices += self.collection.on_head(decode_head(payload))

    def step(self, ms=20, *, fate=lambda: [10]):
        """Let time pass. ``fate()`` says after how long copies of an answer come; [] loses it."""
        self.now_ms += ms
        due = sorted((each for each in self.on_wire if each[0] <= self.now_ms), key=lambda e: e[0])
        self.on_wire = [each for each in self.on_wire if each[0] > self.now_ms]
        for _, broker, payload in due:
            self.hear(broker, payload)
        self.finish_landing()
        for order in self.collection.due(now_ms=self.now_ms):
            match order:
                case Piece():
                    assert order.key not in [each.key for _, each in self.landing]
                    self.landing.append((self.now_ms + self.disk_ms, order))
                case Question(broker, spool, first, last):
                    self.asked.append(order)
                    assert last - first < 10**6
                    ask = Ask(spool=spool, first=first, last=last, to="token")
                    for payload in self.agents[broker].answer(ask):
                        for delay_ms in fate():
                            self.on_wire.append((self.now_ms + delay_ms, broker, payload))

    def hear(self, broker, payload):
        try:
            self.notices += self.collection.on_answer(
                broker, payload, now_ms=self.now_ms, wall_us=START_US
            )
        except DecodeError:
            return False
        return True

    def finish_landing(self):
        done = [piece for at_ms, piece in self.landing if at_ms <= self.now_ms]
        self.landing = [each for each in self.landing if each[0] > self.now_ms]
        for piece in done:
            if self.disk_works:
                self.landed[piece.key].append(piece)
                self.notices += self.collection.on_landed(piece)
            else:
                self.collection.on_land_failed(piece, now_ms=self.now_ms)

    def run(self, ms, **options):
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self.step(**options)

    def settle(self):
        """Heal, and go on until everything the agents hold is landed."""
        self.disk_works = True
        for _ in range(10_000):
            self.heads()
            self.step()
            if all(self.end(a.broker, a.spool) >= a.last for a in self.agents.values()):
                return
        raise AssertionError(
            [(p.key, p.landed, p.reader.head_last) for p in self.collection.positions()]
        )

    def end(self, broker, spool):
        pieces = self.landed.get((broker, spool), [])
        return pieces[-1].last if pieces else 0

    def check(self):
        """Each batch once, in order, as it was written, or told to be lost; the lost ones."""
        lost = defaultdict(dict)
        for (broker, spool), pieces in self.landed.items():
            written, following = self.agents[broker].written[spool], 1
            for piece in pieces:
                assert piece.first == following, (broker, spool, piece.first, following)
                following = piece.last + 1
                span = range(piece.first, following)
                if piece.gap is None:
                    assert b"".join(piece.lines) == b"".join(written[n] for n in span)
                else:
                    lost[broker, spool] |= dict.fromkeys(span, piece.gap)
        return lost
