"""The window of unacknowledged messages against a receiver written straight from the standard."""

from collections import deque

import mqtt5
from hypothesis import given
from hypothesis import strategies as st

from federator.runtime.mqtt.window import (
    PACKET_ID_USUAL,
    QUOTA_EXCEEDED,
    TAKEN_BYTES,
    BrokerLimits,
    OutboundWindow,
    PacketIds,
)
from federator.runtime.mqtt.wire import Out, packet_id_at, publish_topic, raise_qos

PACKET_BYTES_MAX = 1_000
BYTES_MAX = 2_000


class Receiver:
    """A broker's side of QoS 1 and 2, and the network to it: answers only when told."""

    def __init__(self, receive_max: int) -> None:
        self.receive_max = receive_max
        self.delivered: list[bytes] = []
        self.incoming: deque[bytes] = deque()
        self.unreleased: dict[int, bytes] = {}
        self.saved: dict[int, bytes] = {}
        self.refused = 0

    def take(self, out: Out) -> None:
        self.incoming.extend(bytes(packet) for packet in out)

    def answer_one(self, window: OutboundWindow, out: Out) -> None:
        """Handle the oldest packet; its answer reaches the window at once."""
        if not self.incoming:
            return
        packet, _ = mqtt5.read(memoryview(self.incoming.popleft()))
        match packet:
            case mqtt5.PublishPacket(packet_id=packet_id) if packet.qos == 1:
                assert packet_id is not None
                self.delivered.append(packet.payload)
                window.on_acknowledged(packet_id, 0, out, qos=1)
            case mqtt5.PublishPacket(packet_id=packet_id):
                assert packet_id is not None
                reason = 0
                if packet_id not in self.unreleased and len(self.unreleased) >= self.receive_max:
                    reason = QUOTA_EXCEEDED
                    self.refused += 1
                else:
                    self.unreleased[packet_id] = packet.payload
                window.on_received(packet_id, reason, out)
            case mqtt5.PubRelPacket(packet_id=packet_id):
                if packet_id in self.unreleased:
                    self.delivered.append(self.unreleased.pop(packet_id))
                window.on_acknowledged(packet_id, 0, out, qos=2)
            case _:
                raise AssertionError(packet)

    def disconnect(self, *, keep_session: bool) -> None:
        self.incoming.clear()
        if not keep_session:
            self.unreleased.clear()

    def die(self) -> None:
        """Be killed, and come back with what was saved last."""
        self.incoming.clear()
        self.unreleased = dict(self.saved)


def connect(
    window: OutboundWindow, receive_max: int, *, session_present: bool = False, died: bool = False
) -> Out:
    out: Out = []
    limits = BrokerLimits(receive_max, PACKET_BYTES_MAX, 2, subscription_ids_available=True)
    window.resume(limits, session_present=session_present, out=out, died=died)
    return out


def message(number: int, qos: int, size: int = 4, topic: str = "t") -> tuple[bytearray, int, int]:
    payload = number.to_bytes(4, "big").ljust(size, b".")
    packet = bytearray(
        mqtt5.PublishPacket(topic, payload, qos=mqtt5.QoS(qos), packet_id=1, duplicate=True).write()
    )
    return packet, packet_id_at(packet), qos


def new_window(bytes_max: int = BYTES_MAX) -> tuple[OutboundWindow, PacketIds]:
    ids = PacketIds()
    return OutboundWindow(ids, bytes_max=bytes_max), ids


def told(window: OutboundWindow) -> list[tuple[str, int]]:
    """What the window tells of refusals from now on: topics and reason codes."""
    refused: list[tuple[str, int]] = []
    window.on_refused = lambda packet, reason: refused.append((publish_topic(packet), reason))
    return refused


steps = st.lists(
    st.sampled_from(["offer1", "offer2", "answer", "answer", "answer", "cut", "cut, new session"]),
    max_size=60,
)
kills = st.lists(
    st.sampled_from(["offer1", "offer2", "offer2", "answer", "answer", "save", "kill"]), max_size=60
)


@given(steps, st.integers(1, 5))
def test_what_is_taken_comes_in_order_whatever_is_cut_and_duplicates_need_a_cut(steps, receive_max):
    window, ids = new_window()
    receiver = Receiver(receive_max)
    receiver.take(connect(window, receive_max))
    taken: list[bytes] = []
    cuts = new_sessions = 0

    for number, step in enumerate(steps):
        out: Out = []
        if step.startswith("offer"):
            packet, id_at, qos = message(number, int(step[-1]))
            if window.offer(packet, id_at, qos, out):
                taken.append(number.to_bytes(4, "big"))
        elif step == "answer":
            receiver.answer_one(window, out)
        else:
            window.suspend()
            keep = step == "cut"
            receiver.disconnect(keep_session=keep)
            out = connect(window, receive_max, session_present=keep)
            cuts, new_sessions = cuts + 1, new_sessions + (not keep)
        receiver.take(out)
        assert window.in_flight <= receive_max
        assert len(ids) == window.in_flight
    for _ in range(10 * len(steps) + 10):
        last: Out = []
        receiver.answer_one(window, last)
        receiver.take(last)

    assert list(dict.fromkeys(receiver.delivered)) == taken
    assert receiver.refused == 0
    assert (window.in_flight, window.waiting, window.bytes, len(ids)) == (0, 0, 0, 0)
    if cuts == 0:
        assert len(receiver.delivered) == len(taken)
    elif new_sessions == 0:
        qos2 = [n.to_bytes(4, "big") for n, step in enumerate(steps) if step == "offer2"]
        assert all(receiver.delivered.count(payload) <= 1 for payload in qos2)


@given(kills, st.integers(1, 5))
def test_a_broker_that_comes_back_with_an_old_session_gets_everything(steps, receive_max):
    window, ids = new_window()
    receiver = Receiver(receive_max)
    receiver.take(connect(window, receive_max))
    taken: list[bytes] = []

    for number, step in enumerate(steps):
        out: Out = []
        if step.startswith("offer"):
            packet, id_at, qos = message(number, int(step[-1]))
            if window.offer(packet, id_at, qos, out):
                taken.append(number.to_bytes(4, "big"))
        elif step == "answer":
            receiver.answer_one(window, out)
        elif step == "save":
            receiver.saved = dict(receiver.unreleased)
        else:
            window.suspend()
            receiver.die()
            out = connect(window, receive_max, session_present=True, died=True)
        receiver.take(out)
    while receiver.incoming:
        last: Out = []
        receiver.answer_one(window, last)
        receiver.take(last)

    assert list(dict.fromkeys(receiver.delivered)) == taken
    assert receiver.refused == 0
    assert (window.in_flight, window.waiting, window.bytes, len(ids)) == (0, 0, 0, 0)


def test_packet_identifiers_are_unique_wrap_stay_low_and_skip_those_in_use():
    ids = PacketIds()
    kept = ids.take()

    seen = set()
    for _ in range(65_534):
        packet_id = ids.take()
        seen.add(packet_id)
        ids.release(packet_id)

    assert seen == set(range(2, PACKET_ID_USUAL + 1))
    assert ids.take() not in {kept}


def test_every_packet_identifier_is_used_when_many_are_needed():
    ids = PacketIds()

    assert {ids.take() for _ in range(65_535)} == set(range(1, 65_536))


@given(st.lists(st.tuples(st.integers(0, 300), st.sampled_from([1, 2])), max_size=12), st.data())
def test_a_run_is_sent_and_acknowledged_as_its_packets_one_by_one(sizes, data):
    packets = [publication(number, size, qos) for number, (size, qos) in enumerate(sizes)]
    run, places = b"".join(packets), []
    for packet, (_, qos) in zip(packets, sizes, strict=True):
        at = places[-1][1] if places else 0
        places.append((at, at + len(packet), at + packet_id_at(packet), qos))
    separately, together = (OutboundWindow(PacketIds(), bytes_max=BYTES_MAX) for _ in range(2))
    receive_max = data.draw(st.integers(1, 8))
    outs = connect(separately, receive_max), connect(together, receive_max)

    taken = sum(
        separately.offer(bytearray(packet), packet_id_at(packet), qos, outs[0])
        for packet, (_, qos) in zip(packets, sizes, strict=True)
    )

    assert together.offer_run(run, places, outs[1]) == taken
    assert outs[0] == outs[1]
    places_of_ids = [(packet, packet_id_at(packet)) for packet in outs[0]]
    sent = [packet[at] << 8 | packet[at + 1] for packet, at in places_of_ids]
    acked = data.draw(st.lists(st.sampled_from([*sent, 999]), max_size=12))
    for packet_id in acked:
        separately.on_acknowledged(packet_id, 0, outs[0], qos=1)
    together.on_run_acknowledged(acked, outs[1])
    assert outs[0] == outs[1]
    assert separately.settled_through == together.settled_through
    assert separately.bytes == together.bytes


def publication(number: int, size: int, qos: int) -> bytes:
    payload = b"%d" % number + bytes(size)
    return mqtt5.PublishPacket("t", payload, qos=mqtt5.QoS(qos), packet_id=1).write()


def test_what_waited_for_a_trial_and_fits_is_tried_no_more() -> None:
    window = OutboundWindow(PacketIds(), bytes_max=100_000)
    out: Out = []
    window.resume(BrokerLimits(1, 50_000, 2, True), session_present=False, out=out)
    out.clear()

    def try_packet(payload: bytes) -> None:
        packet = mqtt5.PublishPacket("t", payload).write()
        tried = raise_qos(packet)

        def on_answer(reason: int, size: int = len(packet)) -> None:
            window.taken_bytes = max(window.taken_bytes, size)

        assert window.offer(tried, packet_id_at(tried), 1, out, on_answer)

    long = TAKEN_BYTES * b"x"
    payloads = [long + b"1", long + b"2", b"short", long + b"a longer one", long + b"5"]
    for payload in payloads:
        try_packet(payload)
    assert window.awaits_word

    came = []
    while out:
        packet, _ = mqtt5.read(memoryview(bytes(out.pop(0))))
        assert isinstance(packet, mqtt5.PublishPacket)
        came.append((packet.payload, int(packet.qos)))
        if packet.packet_id:
            window.on_acknowledged(packet.packet_id, 0, out, qos=1)

    assert came == list(zip(payloads, [1, 0, 0, 1, 0], strict=True))
    assert not window.awaits_word
    assert window.bytes == 0
