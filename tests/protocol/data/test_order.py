"""What one publisher sends in turn on several topics arrives in turn, whatever the routes are."""

from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.data import intake
from federator.protocol.effects import FilterRoute
from federator.protocol.types import BrokerId, Millis, Now
from lab.sim.data import number_of, packet_of
from tests.protocol.data.planes import bring, plane_of

ORIGIN, RELAY, END, OTHER_END = map(BrokerId, range(1, 5))
NOW = Now(Millis(0), 1_000_000)
TOPICS = ("a/1", "b/1", "b/2", "c/1", "d/1")
FILTERS_OF = {RELAY: (), END: ("a/#", "b/#", "b/2", "c/+"), OTHER_END: ("a/1", "d/#")}


class Outlet:
    def __init__(self):
        self.told = []

    def ask(self, neighbour, request):
        raise AssertionError("nothing is missing")

    def tell(self, notice):
        self.told.append(notice.name)


class Wire:
    """Brings what one agent sends to its neighbour, at the end of the turn."""

    room = idle = True
    urgent_bytes = unacknowledged = 0
    packet_bytes_max = packet_bytes_sure = 1 << 28

    def __init__(self, queue, to):
        self.queue, self.to = queue, to

    def write_packets(self, parts, count, *, urgent=False):
        self.queue.append((self.to, b"".join(parts)))
        return True


class Line:
    """Four brokers: the first publishes, the third and the fourth are behind the second."""

    def __init__(self, *, old=()):
        self.queue, self.arrived, self.outlet = [], {END: [], OTHER_END: []}, Outlet()
        self.planes = {id: self.made(id) for id in (ORIGIN, RELAY, END, OTHER_END)}
        for id, neighbours in {ORIGIN: (RELAY,), RELAY: (ORIGIN, END, OTHER_END)}.items():
            for neighbour in neighbours:
                for a, b in ((id, neighbour), (neighbour, id)):
                    new = a not in old and b not in old
                    self.planes[a].reach(b, Wire(self.queue, b), NOW, takes_bundles=new)
        for end, filters in FILTERS_OF.items():
            for filter in filters:
                others = [e for e, theirs in FILTERS_OF.items() if filter in theirs]
                self.planes[end].set_route(filter, FilterRoute(True, False, (RELAY,)), NOW)
                relay = FilterRoute(False, True, (ORIGIN, *others))
                self.planes[RELAY].set_route(filter, relay, NOW)
                self.planes[ORIGIN].set_route(filter, FilterRoute(False, True, (RELAY,)), NOW)

    def made(self, id):
        arrived = self.arrived.get(id, [])

        def take(packet):
            return packet.topic.startswith("$") or arrived.append(packet)

        return plane_of(id, self.outlet, take, NOW)

    def read(self, id, run):
        bring(self.planes[id], run, NOW)

    def publish(self, *reads):
        """Let the origin's broker bring ``reads``, and everything sent arrive, read by read."""
        number = 0
        for read in reads:
            packets = []
            for topic, qos in read:
                number += 1
                packets.append(packet_of(topic, number, qos, packet_id=number))
            if packets:
                self.read(ORIGIN, b"".join(packets))
        while self.queue:
            by_end = {}
            for end, wire in self.queue:
                by_end.setdefault(end, []).append(wire)
            self.queue.clear()
            for end, wires in by_end.items():
                self.read(end, b"".join(wires))


READS = st.lists(
    st.lists(st.tuples(st.sampled_from(TOPICS), st.sampled_from((0, 0, 1))), max_size=12),
    min_size=1,
    max_size=4,
)


def wanted(end, reads):
    numbered = enumerate((topic for read in reads for topic, _ in read), 1)
    wants = {END: ("a", "b", "c"), OTHER_END: ("a/1", "d")}[end]
    return [number for number, topic in numbered if topic.startswith(wants)]


@given(READS)
def test_every_destination_gets_what_it_wants_in_the_order_of_publication(reads):
    line = Line()

    line.publish(*reads)

    for end, packets in line.arrived.items():
        assert [number_of(packet) for packet in packets] == wanted(end, reads)
    assert not line.outlet.told


@given(READS, st.sampled_from(((ORIGIN,), (RELAY,), (END,), (RELAY, OTHER_END))))
def test_among_agents_that_know_no_bundles_nothing_is_lost_and_each_topic_is_in_order(reads, old):
    line = Line(old=old)

    line.publish(*reads)

    for end, packets in line.arrived.items():
        assert sorted(map(number_of, packets)) == wanted(end, reads)
        for topic in TOPICS:
            for qos in (0, 1):
                of_one = [number_of(p) for p in packets if (p.topic, p.qos) == (topic, qos)]
                assert of_one == sorted(of_one)


def test_one_read_of_many_routes_is_one_publication_to_the_neighbour():
    line = Line()

    packets = [packet_of(topic, n, n % 2, packet_id=n) for n, topic in enumerate(TOPICS * 4, 1)]
    line.read(ORIGIN, b"".join(packets))

    assert len(line.queue) == 1


def test_a_last_will_at_qos_1_stays_before_the_birth_at_qos_0_that_follows():
    line = Line()

    line.publish([("a/1", 1)], [("b/1", 0)], [("a/1", 1)], [("b/1", 0)])

    assert [number_of(packet) for packet in line.arrived[END]] == [1, 2, 3, 4]


def test_a_relay_that_spoils_one_frame_of_a_bundle_costs_no_other():
    line = Line()
    packets = [packet_of(topic, n, n % 2, packet_id=n) for n, topic in enumerate(TOPICS, 1)]
    line.read(ORIGIN, b"".join(packets))
    (end, wire), *_ = line.queue
    line.queue[:] = [(end, wire.replace(packets[1], b"\x00" * len(packets[1])))]

    line.publish()

    assert [number_of(packet) for packet in line.arrived[END]] == [1, 3, 4]
    assert line.outlet.told == ["frame.malformed"]


def test_a_flood_of_routes_and_turns_becomes_several_bundles_that_all_are_taken(monkeypatch):
    line = Line()
    monkeypatch.setattr(intake, "BUNDLE_FRAMES_MAX", 3)
    monkeypatch.setattr(intake, "BUNDLE_RUNS_MAX", 5)

    line.publish([(topic, n % 2) for n, topic in enumerate(TOPICS * 6)])

    assert [number_of(packet) for packet in line.arrived[END]] == wanted(
        END, [[(topic, 0) for topic in TOPICS * 6]]
    )
