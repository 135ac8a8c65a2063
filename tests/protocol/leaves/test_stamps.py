"""Publications that come by both hubs of a leaf are known again, and by nobody else's word."""

from mqtt5 import PublishPacket, QoS

from federator.protocol.forwarding.frames import CUSTODY_FLAG, Frame
from federator.protocol.forwarding.publications import packets_in
from federator.protocol.leaves.stamps import PROPERTY, TWIN_MS, OwnNumbers, StampBook, Stamps
from federator.protocol.types import BrokerId, Epoch, Millis
from federator.runtime.mqtt.wire import inbound_of

LEAF, HUB, OTHER_HUB, FAR = map(BrokerId, (11, 1, 2, 3))
NOW = Millis(1_000)


def run_of(*payloads, topic="a/b", qos=1, properties=()):
    ids = {"qos": QoS(qos), "packet_id": 7} if qos else {}
    packets = (
        PublishPacket(topic, payload, user_properties=list(properties), **ids)
        for payload in payloads
    )
    return b"".join(packet.write() for packet in packets)


def frame(origin, seq, *, qos=1, count=1):
    return Frame(
        flags=CUSTODY_FLAG if qos else 0,
        hops=0,
        hop_limit=9,
        sender=origin,
        origin=origin,
        epoch=Epoch(5),
        seq=seq,
        origin_time_us=1,
        publications=count,
        keys=b"",
        mask=0,
        body=memoryview(b""),
    )


def payloads(run):
    return [packet.payload for packet in packets_in(run)]


class Hub:
    """The agents beside one hub's broker, at which one leaf hangs that has another hub, too."""

    def __init__(self, id):
        book = StampBook(bytes([id]) * 20, life=id)
        self.again = []
        self.mesh = Stamps(id, book)
        self.port = Stamps(id, book, is_port=True, again=lambda run: self.again.extend([run]))
        self.mesh.stamping = self.port.stamping = True

    def to_leaf(self, run):
        """What the port sends of what its broker brings."""
        return taken(self.port, run)

    def to_mesh(self, run):
        return taken(self.mesh, run)


def taken(stamps, run, now_ms=NOW):
    chunk, _ = stamps.leaving(memoryview(run), inbound_of(run), but="frames", now_ms=now_ms)
    return bytes(chunk)


def test_what_the_mesh_brings_by_both_hubs_a_leaf_publishes_once():
    leaf = Stamps(LEAF, StampBook())
    runs = [
        hub.to_leaf(hub.mesh.arriving(frame(FAR, 1), run_of(b"x", b"y"), now_ms=NOW))
        for hub in (Hub(HUB), Hub(OTHER_HUB))
    ]

    first, second = (leaf.arriving(frame(HUB, n), run, now_ms=NOW) for n, run in enumerate(runs))

    assert (first, second) == (run_of(b"x", b"y"), b"")
    assert leaf.repeats == 2


def test_equal_publications_of_one_frame_are_two():
    hub, leaf = Hub(HUB), Stamps(LEAF, StampBook())

    run = hub.to_leaf(hub.mesh.arriving(frame(FAR, 1), run_of(b"on", b"on"), now_ms=NOW))

    assert payloads(leaf.arriving(frame(HUB, 1), run, now_ms=NOW)) == [b"on", b"on"]


def test_what_a_leaf_says_by_its_other_hub_goes_to_the_mesh_but_not_to_clients_again():
    first, second, far = Hub(HUB), Hub(OTHER_HUB), Stamps(FAR, StampBook())
    run = run_of(b"x")
    from_first = first.to_mesh(first.port.arriving(frame(LEAF, 9), run, now_ms=NOW))
    assert payloads(second.mesh.arriving(frame(HUB, 1), from_first, now_ms=NOW)) == [b"x"]

    assert second.port.arriving(frame(LEAF, 9), run, now_ms=NOW) == b""

    (handed,) = second.again
    assert payloads(far.arriving(frame(OTHER_HUB, 1), second.to_mesh(handed), now_ms=NOW)) == [b"x"]
    assert far.arriving(frame(HUB, 1), from_first, now_ms=NOW) == b"", "it came by the other hub"


def test_a_leaf_that_says_the_same_again_is_heard_once():
    hub = Hub(HUB)

    once, twice = (hub.port.arriving(frame(LEAF, 9), run_of(b"x"), now_ms=NOW) for _ in range(2))

    assert (payloads(once), twice, hub.again) == ([b"x"], b"", [])


def test_what_clients_of_a_hub_publish_is_the_same_by_the_mesh_and_straight():
    near, other, leaf = Hub(HUB), Hub(OTHER_HUB), Stamps(LEAF, StampBook())
    run = run_of(b"on")
    straight = near.to_leaf(run)
    around = other.to_leaf(other.mesh.arriving(frame(HUB, 1), near.to_mesh(run), now_ms=NOW))

    assert payloads(leaf.arriving(frame(HUB, 1), straight, now_ms=NOW)) == [b"on"]
    assert leaf.arriving(frame(OTHER_HUB, 1), around, now_ms=NOW) == b""


def test_publications_alike_have_a_number_each_and_all_who_take_them_have_the_same():
    numbers = OwnNumbers()

    first = [numbers.number(1, taker, NOW) for taker in (10, 11, 10, 11)]
    later = numbers.number(1, 12, Millis(NOW + TWIN_MS + 1))

    assert first == [1, 1, 2, 2]
    assert later == 3


def test_a_leaf_gets_nothing_of_its_own_back():
    hub, leaf = Hub(HUB), Stamps(LEAF, StampBook())

    echo = hub.to_leaf(hub.port.arriving(frame(LEAF, 9), run_of(b"x"), now_ms=NOW))

    assert leaf.arriving(frame(OTHER_HUB, 1), echo, now_ms=NOW) == b""


def test_a_clients_own_stamp_means_nothing_anywhere():
    hub, plain = Hub(HUB), Stamps(FAR, StampBook())
    true = next(packets_in(hub.mesh.arriving(frame(FAR, 1), run_of(b"x"), now_ms=NOW)))
    stolen = [*true.user_properties]
    garbage = [(PROPERTY, "?"), ("mine", "kept")]
    assert [name for name, _ in stolen] == [PROPERTY]

    for forged in (stolen, garbage, [*stolen, *stolen]):
        run = run_of(b"other", properties=forged)
        assert dict(next(packets_in(hub.to_leaf(run))).user_properties).get(PROPERTY) not in {
            value for _, value in forged
        }
        kept = [each for each in forged if each[0] != PROPERTY]
        assert taken(plain, run) == run_of(b"other", properties=kept)


def test_a_leaf_cannot_speak_for_another():
    hub, far = Hub(HUB), Hub(FAR)
    other = next(packets_in(hub.port.arriving(frame(BrokerId(12), 1), run_of(b"x"), now_ms=NOW)))

    run = run_of(b"x", properties=other.user_properties)
    brought = hub.port.arriving(frame(LEAF, 1), run, now_ms=NOW)

    assert payloads(far.mesh.arriving(frame(HUB, 1), hub.to_mesh(brought), now_ms=NOW)) == [b"x"]
    assert next(packets_in(brought)).user_properties != other.user_properties


def test_where_no_leaf_has_two_hubs_bytes_pass_as_they_are():
    member = Stamps(FAR, StampBook())
    run = run_of(b"x", properties=[("mine", "kept")])

    assert taken(member, run) is not run
    assert member.arriving(frame(HUB, 1), run, now_ms=NOW) is run


def test_what_is_stamped_while_the_cover_changes_bears_no_subscription_identifier():
    hub, wire = Hub(HUB), run_of(b"x")
    marked = PublishPacket("a/b", b"x", qos=QoS.AT_LEAST_ONCE, packet_id=7, subscription_ids=[7])

    chunk, _ = hub.mesh.leaving(
        memoryview(wire), [(marked, 0, len(wire))], but="frames", now_ms=NOW
    )

    assert next(packets_in(bytes(chunk))).subscription_ids == []


def test_qos_0_bears_no_stamp():
    hub = Hub(HUB)
    run = run_of(b"x", qos=0)

    assert hub.mesh.arriving(frame(FAR, 1, qos=0), run, now_ms=NOW) == run
    assert hub.to_leaf(run) == run


def test_the_book_forgets_the_oldest():
    leaf = Stamps(LEAF, StampBook(known_max=2))
    hub = Hub(HUB)
    runs = [
        hub.to_leaf(hub.mesh.arriving(frame(FAR, n), run_of(b"x"), now_ms=NOW)) for n in (1, 2, 3)
    ]

    came = [leaf.arriving(frame(HUB, n), runs[n - 1], now_ms=NOW) for n in (1, 2, 2, 3, 1)]

    assert [bool(run) for run in came] == [True, True, False, True, True]


def test_a_new_life_knows_what_the_last_one_published():
    first, hub = Hub(HUB), Hub(HUB)
    said = run_of(b"x")
    first.port.arriving(frame(LEAF, 1), said, now_ms=NOW)
    for known in first.port.unsaved:
        hub.port.book.note(known)

    other = Hub(OTHER_HUB)
    run = other.to_mesh(other.port.arriving(frame(LEAF, 1), said, now_ms=NOW))

    assert hub.mesh.arriving(frame(OTHER_HUB, 1), run, now_ms=NOW) == b""
    assert hub.port.arriving(frame(LEAF, 1), said, now_ms=NOW) == b""
    assert not hub.again, "a leaf had brought it, so the mesh has it"
