"""Publications that come by both hubs of a leaf are known again, and by nobody else's word."""

from pathlib import Path

from mqtt5 import PublishPacket, QoS

from federator.protocol.forwarding.frames import CUSTODY_FLAG, Frame
from federator.protocol.forwarding.publications import packets_in
from federator.protocol.leaves.handover import Handover
from federator.protocol.leaves.stamps import PROPERTY, TWIN_MS, OwnNumbers, StampBook, Stamps
from federator.protocol.types import BrokerId, Epoch, Millis
from federator.runtime.mqtt.wire import inbound_of
from tests.transcripts import play, scenes

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


def taken(stamps, run, now_ms=NOW):
    chunk, _ = stamps.leaving(memoryview(run), inbound_of(run), but="frames", now_ms=now_ms)
    return bytes(chunk)


class Two:
    """The agents at the broker of ``LEAF`` while one follows the other."""

    def __init__(self):
        book = StampBook(b"s" * 20)
        self.handover = Handover()
        self.former, self.successor = Stamps(LEAF, book), Stamps(LEAF, book)
        self.former.turn, self.successor.turn = self.handover.former, self.handover.successor


class Stage:
    """Hubs 1 and 2 with ports 1>11 and 2>11, their leaf 11, member 3, and broker 4 that moves.

    ``clients x a b`` makes a run x of publications a and b. ``brings 1 3:7 x y``: agent 1 brings
    it as frame 7 of broker 3, and what its broker gets is y; ``sends 1>11 y z``: what the port
    takes of that is z. Each prints the publications. Broker 4 has the agents ``former`` and
    ``successor``, until ``hands_over yes``. ``book`` is how many stamps the leaf remembers.
    """

    def __init__(self):
        self.hubs, self.two, self.runs = {1: Hub(HUB), 2: Hub(OTHER_HUB)}, Two(), {}
        self.agents = {"11": Stamps(LEAF, StampBook()), "3": Stamps(FAR, StampBook())}
        self.agents |= {"former": self.two.former, "successor": self.two.successor}
        for id, hub in self.hubs.items():
            self._hub(id, hub)

    def do(self, command, *words):
        again = sum(len(hub.again) for hub in self.hubs.values())
        yield from getattr(self, f"_{command}")(*words) or ()
        for run in [run for hub in self.hubs.values() for run in hub.again][again:]:
            self.runs["again"] = run
            yield f"again {said(run)}"

    def _hub(self, id, hub):
        self.agents |= {str(id): hub.mesh, f"{id}>11": hub.port}

    def _clients(self, name, *texts):
        qos = 0 if "qos=0" in texts else 1
        contents = [text.encode() for text in texts if text != "qos=0"]
        self.runs[name] = run_of(*contents, qos=qos)

    def _brings(self, agent, frame_, run, name="_"):
        origin, seq = map(int, frame_.split(":"))
        packets = list(packets_in(self.runs[run]))
        qos = packets[0].qos.value if packets else 1
        which, stamps = frame(BrokerId(origin), seq, qos=qos), self.agents[agent]
        repeats = stamps.repeats
        self.runs[name] = stamps.arriving(which, self.runs[run], now_ms=NOW)
        yield said(self.runs[name])
        if stamps.repeats != repeats:
            yield f"{stamps.repeats} repeats"

    def _sends(self, agent, run, name="_"):
        self.runs[name] = taken(self.agents[agent], self.runs[run])
        yield said(self.runs[name])

    def _hands_over(self, whether):
        self.two.handover.is_done = whether == "yes"

    def _book(self, known_max):
        self.agents["11"] = Stamps(LEAF, StampBook(known_max=int(known_max)))

    def _restart(self, hub):
        """Another process of a hub, which reads what the last one stored."""
        former, self.hubs[int(hub)] = self.hubs[int(hub)], Hub(BrokerId(int(hub)))
        for known in former.port.unsaved:
            self.hubs[int(hub)].port.book.note(known)
        self._hub(hub, self.hubs[int(hub)])


def said(run):
    """The publications of a run, with ``*`` behind those that bear nothing but a stamp."""
    marks = {0: "", 1: "*"}
    packets = list(packets_in(run))
    assert all({name for name, _ in packet.user_properties} <= {PROPERTY} for packet in packets)
    texts = [packet.payload.decode() + marks[len(packet.user_properties)] for packet in packets]
    return " ".join(texts) or "nothing"


@scenes(Path(__file__).with_name("stamps.txt"))
def test_transcript(path, number):
    play(path, number, Stage())


def test_publications_alike_have_a_number_each_and_all_who_take_them_have_the_same():
    numbers = OwnNumbers()

    first = [numbers.number(1, taker, NOW) for taker in (10, 11, 10, 11)]
    later = numbers.number(1, 12, Millis(NOW + TWIN_MS + 1))

    assert first == [1, 1, 2, 2]
    assert later == 3


def test_publications_alike_have_the_same_numbers_at_an_agent_that_always_lags_behind():
    numbers = OwnNumbers()
    taken = sorted((50 * n + lag, taker) for n in range(100) for taker, lag in ((10, 0), (11, 170)))

    given = {10: [], 11: []}
    for at_ms, taker in taken:
        given[taker].append(numbers.number(1, taker, Millis(at_ms)))

    assert given[10] == given[11] == list(range(1, 101))


def test_a_clients_own_stamp_means_nothing_anywhere():
    hub, plain = Hub(HUB), Stamps(FAR, StampBook())
    true = next(packets_in(hub.mesh.arriving(frame(FAR, 1), run_of(b"x"), now_ms=NOW)))
    stolen = [*true.user_properties]
    garbage = [(PROPERTY, "?"), ("mine", "kept")]
    assert [name for name, _ in stolen] == [PROPERTY]

    for forged in (stolen, garbage, [*stolen, *stolen]):
        run = run_of(b"other", properties=forged)
        assert dict(next(packets_in(taken(hub.port, run))).user_properties).get(PROPERTY) not in {
            value for _, value in forged
        }
        kept = [each for each in forged if each[0] != PROPERTY]
        assert taken(plain, run) == run_of(b"other", properties=kept)


def test_a_leaf_cannot_speak_for_another():
    hub, far = Hub(HUB), Hub(FAR)
    other = next(packets_in(hub.port.arriving(frame(BrokerId(12), 1), run_of(b"x"), now_ms=NOW)))

    run = run_of(b"x", properties=other.user_properties)
    brought = hub.port.arriving(frame(LEAF, 1), run, now_ms=NOW)

    assert payloads(far.mesh.arriving(frame(HUB, 1), taken(hub.mesh, brought), now_ms=NOW)) == [
        b"x"
    ]
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
