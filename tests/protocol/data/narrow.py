"""Data planes joined by links with a rate and a queue, their traces followed, on one clock."""

import heapq
from itertools import count

from federator.protocol.telemetry import tracing
from federator.protocol.telemetry.tracing import Onward
from federator.protocol.types import Millis, Now
from tests.protocol.data.planes import bring, plane_of
from tests.protocol.data.test_order import Outlet

DELAY_MS = 2


class Narrow:
    """One direction of a link: what finds its queue full is dropped, and counted."""

    urgent_bytes = unacknowledged = 0
    packet_bytes_max = packet_bytes_sure = 1 << 28

    def __init__(self, world, to, *, bytes_per_ms=1_000_000, queue_bytes=1 << 30):
        self.world, self.to = world, to
        self.bytes_per_ms, self.queue_bytes = bytes_per_ms, queue_bytes
        self.free_ms, self.taken_bytes, self.emptied = 0.0, 0, 0
        self.dropped = self.dropped_bytes = 0

    @property
    def waiting_ms(self):
        return max(0.0, self.free_ms - self.world.now_ms)

    @property
    def waiting_bytes(self):
        return int(self.waiting_ms * self.bytes_per_ms)

    @property
    def idle(self):
        return not self.waiting_ms

    @property
    def room(self):
        return 2 * self.waiting_bytes < self.queue_bytes

    def write_packets(self, parts, count, *, urgent=False):
        packet = b"".join(parts)
        if self.waiting_bytes + len(packet) > self.queue_bytes:
            self.dropped += 1
            self.dropped_bytes += len(packet)
            return False
        self.emptied += self.idle
        self.taken_bytes += len(packet)
        self.free_ms = self.world.now_ms + self.waiting_ms + len(packet) / self.bytes_per_ms
        self.world.at(self.free_ms + DELAY_MS, self.world.read, self.to, packet)
        return True


class Echoes:
    """Tells the origin of traces, as the agent's service of them does."""

    def __init__(self, world, self_id):
        self.world, self.self_id = world, self_id

    def on_frame(self, frame, route):
        logbook = tracing.read_logbook(frame.body, sender=frame.sender).at(self.self_id, 0)
        sends = () if route is None else self._allowed(logbook.topic, route.sends)
        onward = Onward(route is not None, False, [(hop, 0) for hop, _ in sends])
        heard = tracing.echo(logbook, onward, epoch=frame.epoch, number=frame.seq)
        home_ms = self.world.now_ms + DELAY_MS * heard.at
        self.world.at(home_ms, self.world.planes[frame.origin].moves.on_echo, heard)
        return sends, tracing.write_logbook(logbook)

    def _allowed(self, topic, sends):
        rules_of = self.world.planes[self.self_id].outgoing.policies.rules_of
        return tuple(each for each in sends if rules_of(each[0]).allows_export(topic))


class NarrowWorld:
    """The planes of ``ids``, and what happens when.

    Args:
        take: Gets each packet that is published at a broker, with the broker.
        options: Of all planes.
    """

    def __init__(self, ids, take, **options):
        self.now_ms, self._events, self._order = 0.0, [], count()
        self.planes = {}
        for id in ids:
            made = plane_of(id, Outlet(), lambda p, id=id: take(id, p), self.now, **options)
            made.report_traces(Echoes(self, id))
            self.planes[id] = made

    @property
    def now(self):
        return Now(Millis(int(self.now_ms)), int(1_000 * self.now_ms) + 1_000_000)

    def at(self, at_ms, call, *args):
        heapq.heappush(self._events, (at_ms, next(self._order), call, args))

    def read(self, id, run):
        bring(self.planes[id], run, self.now)

    def run_until(self, until_ms):
        while True:
            due = min(p.next_deadline_ms() or until_ms + 1 for p in self.planes.values())
            event_ms = self._events[0][0] if self._events else until_ms + 1
            if min(due, event_ms) > until_ms:
                break
            self.now_ms = max(self.now_ms, min(due, event_ms))
            if event_ms <= due:
                _, _, call, args = heapq.heappop(self._events)
                call(*args)
            else:
                for plane in self.planes.values():
                    plane.on_time(self.now)
        self.now_ms = until_ms
