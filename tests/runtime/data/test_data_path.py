"""The data path between recorded connections: what it sends where, and what it counts."""

import contextlib
import resource
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import mqtt5
import pytest
from mqtt5 import PublishPacket, QoS
from structlog.testing import capture_logs

from federator.config.sections import CustodySettings
from federator.protocol.custody.doubts import Notary
from federator.protocol.data.features import FRAME_BYTES_MAX, HOP_LIMIT, Features, Limits
from federator.protocol.data.plane import DataPlane
from federator.protocol.effects import FilterRoute
from federator.protocol.forwarding import frames
from federator.protocol.forwarding.explanation import explain
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.forwarding.frames import CUSTODY_FLAG, TAIL_FLAG
from federator.protocol.policy.link_policies import LinkPolicies
from federator.protocol.policy.rules import LinkRules
from federator.protocol.types import BrokerId, Epoch, Now
from federator.runtime.custody.stores import CustodyStores
from federator.runtime.data.data_path import CustodyMessenger, DataPath
from federator.runtime.process.clocks import monotonic_ms
from lab.sim.data import publish_each
from tests.protocol.frames import made_frame
from tests.protocol.trust.key_maker import KeyMaker
from tests.real.polling import until

US, N2, N3, FAR = BrokerId(1), BrokerId(2), BrokerId(3), BrokerId(9)
NOW_US = 5_000_000


class RecordedLink:
    """Keeps what is written; ``open`` says whether it is taken."""

    room = True
    queued_bytes = urgent_bytes = unacknowledged = waiting = 0

    def __init__(self) -> None:
        self.runs: list[bytes] = []
        self.packets: list[tuple[bytes, int, int]] = []
        self.open = True
        self.idle = True
        self.packet_bytes_max = self.packet_bytes_sure = 1 << 28

    def write_packets(
        self, parts: Sequence[bytes | memoryview], count: int, *, urgent: bool = False
    ) -> bool:
        if self.open:
            self.runs.append(b"".join(parts))
        return self.open

    def publish_packet(self, packet: bytearray, packet_id_at: int, qos: int) -> bool:
        if self.open:
            self.packets.append((bytes(packet), packet_id_at, qos))
        return self.open

    def publish_run(self, run, places):
        return publish_each(self, run, places)

    @property
    def frames(self) -> list[frames.Frame]:
        written = [*self.runs, *(packet for packet, _, _ in self.packets)]
        return [frames.unpack(parse(packet).payload) for packet in written]


@pytest.fixture(autouse=True)
def _folders(tmp_path):
    Agent.folders = (tmp_path / str(number) for number in count())


class Source:
    """Keeps what is acknowledged."""

    session_number = 1

    def __init__(self) -> None:
        self.acknowledged: list[tuple[int, int]] = []

    def acknowledge(self, packet_ids, *, session_number: int) -> None:
        assert session_number == self.session_number
        self.acknowledged += packet_ids


class Agent:
    """A data path with recorded connections to brokers 1 (ours), 2 and 3."""

    folders: Iterator[Path]

    def __init__(
        self,
        routes: dict[str, FilterRoute],
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        hop_limit: int = HOP_LIMIT,
        **hooks: Any,
    ) -> None:
        self.forwarder, self.local = Forwarder(), RecordedLink()
        stores = CustodyStores(next(self.folders), CustodySettings())
        plane = DataPlane(
            self_id=US,
            epoch=Epoch(7),
            federation="fed",
            forwarder=self.forwarder,
            disk=stores,
            outlet=CustodyMessenger(lambda neighbour, request: None),
            now=Now(monotonic_ms(), NOW_US),
            limits=Limits(frame_bytes_max=frame_bytes_max, hop_limit=hop_limit),
            features=Features(link=self.local, **hooks),
        )
        self.path = DataPath(plane, stores, wall_clock_us=lambda: NOW_US)
        for filter, route in routes.items():
            self.path.set_route(filter, route)
        self.links = {N2: RecordedLink(), N3: RecordedLink()}
        for neighbour, link in self.links.items():
            self.path.reach(neighbour, link)

    @property
    def counters(self):
        return self.path.counters

    def read(self, *packets: bytes) -> None:
        """One socket read of the data connection, in a buffer that is reused at once."""
        buffer = bytearray(b"".join(packets))
        chunk = memoryview(buffer)
        publishes, at = [], 0
        while at < len(chunk):
            packet, size = mqtt5.read(chunk[at:])
            assert isinstance(packet, PublishPacket)
            publishes.append((packet, at, at + size))
            at += size
        self.path.on_publishes(chunk, publishes)
        buffer[:] = bytes(len(buffer))


def parse(packet: bytes) -> PublishPacket:
    parsed, size = mqtt5.read(memoryview(packet))
    assert isinstance(parsed, PublishPacket)
    assert size == len(packet)
    return parsed


def parse_first(frame: frames.Frame) -> str:
    """The first letter of the topics in ``frame``."""
    packet, _ = mqtt5.read(frame.body)
    assert isinstance(packet, PublishPacket)
    return packet.topic[0]


def packet(topic: str, payload: bytes = b"x", *, qos: int = 0) -> bytes:
    return PublishPacket(topic, payload, qos=QoS(qos), packet_id=5 if qos else None).write()


def framed(*filters: str, body: bytes, flags: int = 0, chain: int = 0, **fields: int) -> bytes:
    """A PUBLISH with a frame from broker 9 that came over broker 2."""
    forwarder = Forwarder()
    for filter in filters:
        forwarder.set_route(filter, to(N2))
    found = [forwarder.key(each.filter) for each in explain(forwarder, "a/b").filters]
    usual: dict[str, Any] = {
        "origin": FAR,
        "sender": N2,
        "hop_limit": 64,
        "mask": (1 << len(filters)) - 1,
    }
    usual |= {"origin_time_us": NOW_US - 1_500, "keys": b"".join(sorted(found))}
    if flags:
        usual |= {"flags": flags, "chain": chain.to_bytes(8 * len(filters), "big")}
    return packet("$fed/fed/data", frames.pack(made_frame(body=body, **usual | fields)))


def to(*hops: BrokerId, local: bool = False) -> FilterRoute:
    return FilterRoute(local=local, wanted=bool(hops), next_hops=hops)


async def test_one_read_becomes_one_frame_per_route_and_class_of_qos():
    agent = Agent({"a/+": to(N2), "b/+": to(N2, N3)})
    a, b = [packet(f"a/{n}", b"%d" % n) for n in range(4)], [packet(f"b/{n}") for n in range(2)]
    a1, a2 = packet("a/1", qos=1), packet("a/2", qos=2)

    agent.read(a[0], a[1], b[0], a1, a[2], b[1], a2, a[3])

    first, second, third = agent.links[N2].frames
    assert bytes(first.body) == b"".join(a)
    assert (first.publications, first.acknowledged, first.hops) == (4, False, 0)
    assert (first.origin, first.sender, first.epoch) == (US, US, 7)
    assert first.origin_time_us == NOW_US
    assert bytes(second.body) == b"".join(b)
    assert bytes(third.body) == a1 + a2
    assert third.acknowledged
    assert [frame.seq for frame in (first, second, third)] == [1, 2, 1]
    assert [bytes(frame.body) for frame in agent.links[N3].frames] == [b"".join(b)]
    assert (agent.counters.publications_in, agent.counters.publications_out) == (8, 8)
    assert (agent.counters.frames_out, agent.counters.copies_out) == (4, 10)


def test_what_nobody_wants_is_cut_out_of_the_middle_of_a_read():
    agent = Agent({"a/+": to(N2)})
    wanted = packet("a/1")

    agent.read(wanted, wanted, packet("other"), wanted)

    (frame,) = agent.links[N2].frames
    assert bytes(frame.body) == wanted * 3
    assert frame.publications == 3


async def test_a_clogged_neighbour_alone_gets_no_more_under_custody_while_something_waits():
    agent = Agent({"a": to(N2, N3)})
    slow, quick = agent.links[N2], agent.links[N3]
    slow.open = slow.idle = False
    agent.read(packet("a", b"refused", qos=1))
    agent.path.flush()
    slow.open = True

    for qos in (1, 0):
        agent.read(packet("a", qos=qos))
        agent.path.flush()

    assert [frame.acknowledged for frame in slow.frames] == [False]
    assert [frame.acknowledged for frame in quick.frames] == [True, True, False]
    assert (agent.counters.deferred, agent.counters.dropped) == (2, 0)


async def test_frames_under_custody_say_what_came_before_them_on_each_filter():
    agent = Agent({"a/+": to(N2), "+/1": to(N2)})

    for topic in ("a/1", "a/2", "b/1", "a/1"):
        agent.read(packet(topic, qos=2))

    by_filters = {2: {}, 1: {}}
    for frame in agent.links[N2].frames:
        assert frame.flags == CUSTODY_FLAG
        by_filters[frame.k][frame.seq] = frames.chain_numbers(frame)
    assert {seq: sorted(prevs) for seq, prevs in by_filters[2].items()} == {1: [0, 0], 4: [2, 3]}
    assert by_filters[1] == {2: (1,), 3: (1,)}


async def test_our_broker_is_told_that_a_publication_is_ours_when_it_is_in_the_log():
    agent = Agent({"a/+": to(N2)})
    log = agent.path.stores.log

    agent.read(packet("a/1", qos=1))

    assert bytes(log.read(1).body) == packet("a/1", qos=1)
    source = Source()
    agent.path.acknowledge(source, [(5, 1)])
    assert source.acknowledged == [(5, 1)]


@contextlib.contextmanager
def no_file_grows() -> Iterator[None]:
    """As on a full disk: the system refuses to make any file longer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_what_the_log_has_no_room_for_is_kept_and_taken_later_in_frames_of_the_usual_size():
    agent = Agent({"a/+": to(N2)}, frame_bytes_max=1_000)
    run = [packet("a/1", b"%100d" % n, qos=1) for n in range(40)]
    source = Source()

    with no_file_grows(), capture_logs() as complaints:
        for at in range(0, len(run), 4):
            agent.read(*run[at : at + 4])
            agent.path.acknowledge(source, [(5, 1)] * 4)
    assert not agent.links[N2].frames
    assert not source.acknowledged
    assert [each["event"] for each in complaints] == ["custody.log_failed"]
    agent.path.flush()

    bodies = [bytes(frame.body) for frame in agent.links[N2].frames]
    assert b"".join(bodies) == b"".join(run)
    assert all(len(body) <= 1_000 for body in bodies)
    assert len(source.acknowledged) == 40


@pytest.mark.parametrize(("taken", "times", "each"), [(no_file_grows, 6, 1), (nullcontext, 90, 30)])
async def test_what_waits_for_the_log_or_is_gathered_stays_in_order_while_its_route_changes(
    taken, times, each
):
    agent = Agent({"a/+": to(N2)})
    run = [packet("a/1", b"%d" % n, qos=1) for n in range(times)]

    with taken(), capture_logs():
        for n, one in enumerate(run):
            agent.path.set_route("a/+", to((N2, N3)[n // each % 3 == 1]))
            agent.read(one)
    agent.path.flush()

    log = agent.path.stores.log
    assert b"".join(log.read(seq).body for seq in range(1, log.next_seq)) == b"".join(run)


def test_frames_stay_within_their_size_and_a_longer_publication_travels_alone():
    agent = Agent({"a/+": to(N2)}, frame_bytes_max=1_000)
    small = [packet("a/1", b"s" * 100) for _ in range(30)]
    large = packet("a/1", b"l" * 5_000)

    agent.read(*small[:20], large, *small[20:])

    bodies = [bytes(frame.body) for frame in agent.links[N2].frames]
    assert b"".join(bodies) == b"".join([*small[:20], large, *small[20:]])
    assert large in bodies
    assert all(len(body) <= 1_000 for body in bodies if body != large)
    assert len(bodies) == 6


def test_a_small_frame_does_not_wait_for_alternating_routes_to_fill_it():
    agent = Agent({"a/+": to(N2), "b/+": to(N3)}, frame_bytes_max=100)
    run = [packet(f"{'ab'[n % 2]}/1", b"%4d" % n) for n in range(40)]

    agent.read(*run)

    for link, mine in ((agent.links[N2], run[::2]), (agent.links[N3], run[1::2])):
        bodies = [bytes(frame.body) for frame in link.frames]
        assert b"".join(bodies) == b"".join(mine)
        assert all(len(body) <= 100 for body in bodies)


def test_publications_without_a_route_are_counted_and_not_numbered():
    agent = Agent({"a/+": FilterRoute(local=False, wanted=True, next_hops=())})

    agent.read(packet("a/1"), packet("other"))

    assert agent.counters.no_route == 1
    assert agent.counters.unwanted == 1
    assert agent.counters.publications_out == 0


def test_a_neighbour_out_of_reach_costs_its_copy_and_no_other():
    agent = Agent({"a/+": to(N2, N3)})
    agent.path.reach(N2, None)

    agent.read(packet("a/1"))
    agent.links[N3].open = False
    agent.read(packet("a/1"))

    assert agent.counters.dropped == 3
    assert not agent.links[N2].frames
    assert len(agent.links[N3].frames) == 1


def test_a_frame_is_delivered_as_it_came_and_carried_on_under_our_name():
    agent = Agent({"a/+": to(N2, N3, local=True)})
    body = packet("a/b") + packet("a/c", b"")

    agent.read(framed("a/+", body=body, publications=2))

    assert agent.local.runs == [body]
    (relayed,) = agent.links[N3].frames
    assert bytes(relayed.body) == body
    assert (relayed.sender, relayed.origin, relayed.hops) == (US, FAR, 1)
    assert not agent.links[N2].frames
    assert agent.counters.delivered_publications == agent.counters.relayed == 2
    assert list(agent.path.delays.latest) == [(FAR, 1, 1_500)]
    assert sum(agent.path.delays.counts) == 1


async def test_packets_with_qos_are_delivered_one_by_one_between_two_markers():
    agent = Agent({"a/+": to(local=True)})
    body = [packet("a/b", qos=1), packet("a/b", b"", qos=2)]

    agent.read(framed("a/+", body=b"".join(body), publications=2, flags=CUSTODY_FLAG))

    (_, _, first_marker_qos), *written = agent.local.packets
    [marker] = agent.local.runs
    assert [packet for packet, _, _ in written] == body
    for (one, packet_id_at, qos), expected in zip(written, (1, 2), strict=True):
        assert qos == expected
        assert int.from_bytes(one[packet_id_at : packet_id_at + 2], "big") == 5
    assert (parse(marker).topic, parse(marker).retain) == ("$fed/fed/delivered/1", True)
    assert (first_marker_qos, parse(marker).qos) == (1, 0)


def test_a_later_copy_for_other_filters_is_carried_on_for_those_but_not_delivered_again():
    agent = Agent({"a/+": to(N3, local=True), "a/#": to(N3, local=True)})

    for mask in (0b01, 0b11, 0b11):
        body = packet("a/b") * 2
        agent.read(framed("a/+", "a/#", body=body, publications=2, mask=mask))

    assert (agent.counters.duplicate_frames, agent.counters.duplicates_suppressed) == (1, 2)
    assert len(agent.local.runs) == 1
    assert [frame.mask for frame in agent.links[N3].frames] == [0b01, 0b10]


def test_our_own_frame_that_comes_back_is_suppressed():
    agent = Agent({"a/+": to(N3, local=True)})

    agent.read(framed("a/+", body=packet("a/b"), origin=US))

    assert agent.counters.duplicates_suppressed == 1
    assert not agent.local.runs
    assert not agent.links[N3].frames


def test_a_frame_that_travelled_far_enough_is_delivered_but_not_carried_on():
    agent = Agent({"a/+": to(N3, local=True)})

    agent.read(framed("a/+", body=packet("a/b"), hops=2, hop_limit=3, seq=1))
    agent.read(framed("a/+", body=packet("a/b"), hops=1, hop_limit=3, seq=2))

    assert agent.counters.hop_limit_exceeded == 1
    assert agent.counters.delivered_publications == 2
    assert [frame.hops for frame in agent.links[N3].frames] == [2]


def test_unknown_filters_are_counted_and_delivered_only_while_interest_is_widened():
    agent = Agent({})

    agent.read(framed("a/+", body=packet("a/b"), seq=1))
    agent.forwarder.widen(True)
    agent.read(framed("a/+", body=packet("a/c"), seq=2))

    assert agent.counters.unknown_filters == 2
    assert agent.local.runs == [packet("a/c")]


@pytest.mark.parametrize(
    "payload",
    [
        packet("$fed/fed/data", b"garbage"),
        packet("$fed/fed/data", b""),
        framed("a/+", body=b"\xe0\x00" + bytes(20)),
        framed("a/+", body=packet("a/b"), flags=CUSTODY_FLAG),
        framed("a/+", body=packet("$SYS/broker/load")),
        framed("a/+", body=packet("a/b") + packet("a/b")),
    ],
    ids=["garbage", "empty", "DISCONNECT", "other QoS", "$ topic", "more than it says"],
)
async def test_what_our_broker_would_not_take_is_dropped_and_counted(payload: bytes):
    agent = Agent({"a/+": to(local=True)})

    agent.read(payload)

    assert agent.counters.malformed_frames == 1
    assert all(parse(run).topic == "$fed/fed/delivered/1" for run in agent.local.runs)
    assert all("/delivered/" in parse(written).topic for written, _, _ in agent.local.packets)


def test_a_closed_connection_to_our_broker_loses_what_arrives_and_says_so():
    agent = Agent({"a/+": to(local=True)})
    agent.local.open = False

    agent.read(framed("a/+", body=packet("a/b")))

    assert (agent.counters.dropped, agent.counters.delivered_publications) == (1, 0)


def test_a_new_epoch_numbers_frames_anew():
    agent = Agent({"a/+": to(N2)})

    agent.read(packet("a/1"))
    agent.path.renew_epoch(Epoch(8))
    agent.read(packet("a/1"))

    assert [(frame.epoch, frame.seq) for frame in agent.links[N2].frames] == [(7, 1), (8, 1)]


@pytest.mark.parametrize("hop_limit", [0, 256])
def test_a_hop_limit_that_does_not_fit_the_header_is_refused(hop_limit: int):
    with pytest.raises(ValueError, match=str(hop_limit)):
        Agent({}, hop_limit=hop_limit)


async def test_under_load_reads_are_gathered_and_sent_within_the_gap():
    agent = Agent({"a/+": to(N2), "b/+": to(N2, N3)})
    run = [packet(f"{'ab'[n % 2]}/1", b"%d" % n, qos=n % 3) for n in range(2_000)]

    for one in run:
        agent.read(one)
    await until(
        lambda: sum(frame.publications for frame in agent.links[N2].frames) == len(run),
        "all were sent",
    )

    sent = agent.links[N2].frames
    assert len(sent) < len(run) / 2
    for route in (0, 1):
        for acknowledged in (False, True):
            bodies = [
                bytes(frame.body)
                for frame in sent
                if frame.acknowledged == acknowledged and (parse_first(frame) == "ab"[route])
            ]
            mine = [
                one for n, one in enumerate(run) if n % 2 == route and bool(n % 3) == acknowledged
            ]
            assert b"".join(bodies) == b"".join(mine)


async def test_what_is_gathered_stays_within_a_frame():
    agent = Agent({"a/+": to(N2), "b/+": to(N3)}, frame_bytes_max=1_000)

    for n in range(2_000):
        agent.read(packet(f"{'ab'[n % 2]}/1", b"x" * 100))
        assert (
            sum(len(part) for batch in agent.path._intake.filled for part in batch.parts) <= 1_000
        )


async def test_leaving_sends_what_was_gathered():
    agent = Agent({"a/+": to(N2)})
    for _ in range(100):
        agent.read(packet("a/1"))

    agent.path.flush()

    assert sum(frame.publications for frame in agent.links[N2].frames) == 100
    assert len(agent.links[N2].frames) < 100
    assert not list(agent.path._intake.filled)


def test_a_frame_of_a_stranger_changes_nothing():
    agent = Agent({"a/b": FilterRoute(local=True, wanted=True, next_hops=(N3,))})
    last = 2**64 - 1
    poison = framed("a/b", body=packet("a/b"), seq=last, sender=77, epoch=last)

    agent.read(poison, framed("a/b", body=packet("a/b"), seq=1))

    assert agent.counters.frames_of_strangers == 1
    assert agent.counters.delivered_publications == 1
    assert [frame.seq for frame in agent.links[N3].frames] == [1]


def test_where_only_two_are_no_frame_is_taken_of_a_third():
    agent = Agent(
        {"a/b": FilterRoute(local=True, wanted=True, next_hops=(N3,))}, members=frozenset((US, N2))
    )
    forged = framed("a/b", body=packet("a/b"), origin=FAR, sender=N2, seq=1)

    agent.read(forged, framed("a/b", body=packet("a/b"), origin=N2, sender=N2, seq=1))

    assert agent.counters.frames_of_strangers == 1
    assert agent.counters.delivered_publications == 1


def test_a_frame_on_its_way_when_its_link_broke_still_arrives():
    agent = Agent({"a/b": FilterRoute(local=True, wanted=False, next_hops=())})

    agent.path.reach(N2, None)
    agent.read(framed("a/b", body=packet("a/b"), seq=1))

    assert agent.counters.delivered_publications == 1


async def test_rules_of_a_link_thin_the_copy_for_it_and_no_other():
    gates = LinkPolicies({N2: LinkRules(exports=["a/#"])})
    agent = Agent({"+/x": to(N2, N3)}, policies=gates)
    a, b = packet("a/x"), packet("b/x")

    agent.read(a, b, a)

    (thinned,), (whole,) = agent.links[N2].frames, agent.links[N3].frames
    assert (bytes(thinned.body), thinned.publications) == (a + a, 2)
    assert (bytes(whole.body), whole.publications) == (a + b + a, 3)
    assert thinned.seq == whole.seq
    assert gates.withheld_out == 1


async def test_a_frame_of_which_nothing_may_go_or_come_is_not_sent_or_delivered():
    rules = LinkRules(imports=["a/x"], exports=["a/x"])
    agent = Agent({"a/+": to(N2, N3, local=True)}, policies=LinkPolicies({N2: rules}))
    stopped = packet("a/b")

    agent.read(stopped)
    agent.read(framed("a/+", body=stopped))

    assert agent.links[N2].frames == []
    assert [f.origin for f in agent.links[N3].frames] == [US], "and what came from N2 went nowhere"
    assert agent.local.runs == []


@pytest.mark.parametrize("qos", [0, 1])
async def test_what_lands_here_may_be_other_packets_or_none(qos):
    arrived, other = packet("a/b", qos=qos), packet("here", qos=qos)
    landing = iter([other + other, b""])
    agent = Agent({"a/b": to(local=True)}, to_local_names=lambda run: next(landing))

    for seq in (1, 2):
        agent.read(framed("a/b", body=arrived, seq=seq, flags=CUSTODY_FLAG if qos else 0))

    published = [written for written, _, _ in agent.local.packets]
    landed = [p for p in published if "/delivered/" not in parse(p).topic] or agent.local.runs
    assert b"".join(landed) == other + other
    assert agent.counters.delivered_publications == 2


class Keyring:
    """The keys of an agent of a proven federation whose neighbours seal nothing."""

    proves = True

    def __init__(self, guard) -> None:
        self.guard = guard

    def open_frame(self, payload):
        return frames.unpack(payload).sender, payload


def proven(framed_: bytes, notary: Notary) -> bytes:
    """The same frame with its proof."""
    frame = frames.unpack(parse(framed_).payload)
    notary.prove(frame)
    return packet("$fed/fed/data", frames.pack(frame))


async def test_what_is_not_proven_takes_no_number_away_from_what_is():
    maker = KeyMaker()
    origin = Notary("fed", Keyring(maker.guard(FAR)))
    liar = Notary("fed", Keyring(maker.guard(N2)))
    agent = Agent({"a/+": to(local=True)}, seals=Keyring(maker.guard(US)))
    bodies = [packet("a/b", b"%d" % seq, qos=1) for seq in range(3)]
    made = [framed("a/+", body=bodies[seq], seq=seq, flags=CUSTODY_FLAG) for seq in (1, 2)]

    lie = framed("a/+", body=packet("a/b", b"lie", qos=1), seq=1, flags=CUSTODY_FLAG)
    agent.read(lie, proven(lie, liar), proven(made[0], origin))

    (delivered,) = [p for p, _, _ in agent.local.packets if parse(p).topic == "a/b"]
    assert parse(delivered).payload == b"1"
    assert agent.counters.unproven_frames == 1  # and one waits

    # The tail has the number of a frame of QoS 0, which a member may take.
    tail = framed(
        "a/+", body=(1).to_bytes(8, "big"), seq=50, flags=TAIL_FLAG, publications=0, chain=2
    )
    for seq in range(40, 60):
        agent.read(framed("a/+", body=packet("a/b"), seq=seq))
    agent.read(proven(tail, origin))

    assert agent.path.custody.destination.receiver.gaps == 1
