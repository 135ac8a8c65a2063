"""Frames pass brokers that take only short packets."""

import pytest

from federator.protocol.forwarding.frames import CUSTODY_FLAG, unpack
from federator.protocol.forwarding.parts import Assembly, is_part
from federator.runtime.mqtt.sender import PacketSender
from federator.runtime.mqtt.window import BrokerLimits
from federator.runtime.mqtt.wire import inbound_of
from tests.protocol.data.bare_outgoing import N2, bare_outgoing, send_frame


class Broker:
    """A neighbour's broker, and what its agent makes of what passes."""

    urgent_bytes, idle, packet_bytes_sure = 0, True, 1 << 28

    def __init__(self, packet_bytes_max):
        self.packet_bytes_max = packet_bytes_max
        self.assembly = Assembly()
        self.came, self.longest = [], 0

    def write_packets(self, parts, count, *, urgent=False):
        run = b"".join(parts)
        if len(run) > self.packet_bytes_max:
            return False
        [(packet, _, _)] = inbound_of(run)
        payload = packet.payload
        self.longest = max(self.longest, len(run))
        whole = self.assembly.put(payload) if is_part(payload) else payload
        if whole is not None:
            self.came.append(unpack(whole).seq)
        return True


def outgoing(broker, *, knows_parts=True):
    made = bare_outgoing()
    made.by_broker.reach(N2, broker, takes_bundles=knows_parts)
    return made


def send(made, seq, size, *, flags=CUSTODY_FLAG):
    return send_frame(made, seq, bytes(size), flags=flags)


@pytest.mark.parametrize("flags", [0, CUSTODY_FLAG])
@pytest.mark.parametrize("limit", [1_000, 100_000, 2_000_000])
def test_what_is_too_long_comes_in_parts_and_all_others_pass(limit, flags):
    broker = Broker(limit)
    made = outgoing(broker)

    sent = [send(made, seq, size, flags=flags) for seq, size in enumerate([100, 3_000_000, 100])]

    assert sent == [1, 1, 1]
    assert broker.came == [0, 1, 2]
    assert limit // 2 < broker.longest <= limit


def test_an_earlier_agent_gets_no_parts_and_what_is_too_long_keeps_nothing_out():
    broker = Broker(1_000)
    made = outgoing(broker, knows_parts=False)

    sent = [send(made, seq, size) for seq, size in enumerate([100, 600_000, 100])]

    assert sent == [1, 0, 1]
    assert broker.came == [0, 2]


@pytest.mark.parametrize("limit", [3_000, 3_000_000])
def test_what_just_fits_and_what_just_does_not_arrive_alike(limit):
    broker = Broker(limit)
    made = outgoing(broker)

    sizes = range(limit - 120, limit + 1, 4)
    sent = [send(made, seq, size) for seq, size in enumerate(sizes)]

    assert sent == [1] * len(sizes)
    assert broker.came == list(range(len(sizes)))


class SilentBroker(PacketSender):
    """One with ``message_size_limit``: longer QoS 0 is dropped without a word, QoS 1 answered.

    Answers come when ``answer`` is called, 20 at a time.
    """

    urgent_bytes, idle = 0, True

    def __init__(self, payload_bytes_max):
        super().__init__(queue_bytes_max=1 << 24, acknowledge=True)
        self.payload_bytes_max = payload_bytes_max
        self.assembly = Assembly()
        self.came, self.answers, self.vanished = [], [], 0
        self.limits = BrokerLimits(20, 1 << 28, 2, subscription_ids_available=True)
        self._session.window.resume(self.limits, session_present=False, out=[])
        self._pipe, self._up = self, True

    def send(self, data, **_):
        for packet, _, _ in inbound_of(bytes(data)):
            fits = len(packet.payload) <= self.payload_bytes_max
            if packet.packet_id is not None:
                self.answers.append((packet.packet_id, fits))
            if fits:
                payload = packet.payload
                whole = self.assembly.put(payload) if is_part(payload) else payload
                if whole is not None:
                    self.came += [unpack(whole).seq]
            elif packet.packet_id is None:
                self.vanished += 1
        return True

    def hang_up(self, *, by_itself=True):
        self._session.suspend()
        self._forget_sizes(hung_up=by_itself)
        self._session.window.resume(self.limits, session_present=False, out=[])

    def answer(self):
        while self.answers:
            answers, self.answers, out = self.answers, [], []
            for packet_id, fits in answers:
                if fits:
                    self._session.window.on_run_acknowledged([packet_id], out)
                else:
                    self._session.window.on_too_large(packet_id, out, qos=1)
            self._send(out)
            self._log_too_long()


@pytest.mark.parametrize("flags", [0, CUSTODY_FLAG])
@pytest.mark.parametrize("limit", [1_000, 100_000, 2_000_000])
def test_what_a_broker_drops_in_silence_comes_in_parts_and_nothing_is_lost(limit, flags):
    broker = SilentBroker(limit)
    made = outgoing(broker)

    for seq, size in enumerate([100, 3_000_000, limit + 1, 100, 70_000]):
        assert send(made, seq, size, flags=flags) == 1
    broker.answer()

    assert broker.came == [0, 1, 2, 3, 4]
    assert limit // 2 < broker.packet_bytes_max <= limit + 100
    assert made.counters.dropped == made.counters.deferred == broker.vanished == 0

    broker.came.clear()
    for seq, size in enumerate([100, 3_000_000, limit + 1, 100, 70_000]):
        assert send(made, seq, size, flags=flags) == 1
    assert broker.came == [0, 1, 2, 3, 4], "it is known now, and all are in order"
    assert not broker.answers


def test_what_a_broker_drops_in_silence_is_void_for_an_earlier_agent_and_counted():
    broker = SilentBroker(1_000)
    made = outgoing(broker, knows_parts=False)

    for seq, size in enumerate([100, 600_000, 100]):
        send(made, seq, size)
    broker.answer()

    assert broker.came == [0, 2]
    assert made.counters.deferred == 1


def test_nothing_is_cut_for_ever_where_even_the_shortest_part_is_too_long():
    broker = SilentBroker(200)
    made = outgoing(broker)

    for seq, size in enumerate([10, 10_000, 10]):
        send(made, seq, size, flags=0)
    broker.answer()

    assert broker.came == [0, 2]
    assert made.counters.dropped == 1


def test_a_limit_that_is_lowered_under_way_is_found_by_the_next_packet_that_is_tried():
    broker = SilentBroker(1 << 20)
    made = outgoing(broker)
    send(made, 0, 50_000)
    broker.answer()

    broker.payload_bytes_max = 10_000
    send(made, 1, 60_000)
    broker.answer()
    send(made, 2, 50_000)
    broker.answer()

    assert broker.came == [0, 1, 2]


def test_a_broker_that_hangs_up_at_a_long_packet_gets_shorter_ones_next():
    broker = SilentBroker(100_000)
    made = outgoing(broker)
    send(made, 0, 300_000)

    broker.answers.clear()
    broker.hang_up()
    for seq in (1, 2):
        send(made, seq, 180_000)
        broker.answer()

    assert broker.came == [1, 2]


def test_what_was_tried_when_the_connection_broke_is_forgotten_and_leaves_room():
    broker = SilentBroker(100_000)
    made = outgoing(broker)
    for seq in range(60):
        send(made, seq, 100)
    broker.answers.clear()
    broker.hang_up(by_itself=False)

    assert broker.unacknowledged == 0
    for seq in range(60):
        send(made, seq, 100)
    broker.answer()
    assert broker.came[-60:] == list(range(60))
