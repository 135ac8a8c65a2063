"""What leaves a broker for groups elsewhere, and parcels for members at the broker that serves."""

import asyncio
from contextlib import closing
from pathlib import Path

import mqtt5
from mqtt5 import PublishPacket, QoS
from msgspec import to_builtins

from federator.protocol.filters import FilterTrie
from federator.protocol.messages.group_records import MemberRecord
from federator.protocol.sharing.assignment import Assignment
from federator.protocol.sharing.ledger import Ledger, LedgerParameters
from federator.protocol.sharing.membership import Membership
from federator.protocol.sharing.parcels import Confirmation, pack_parcel, unpack_parcel
from federator.protocol.sharing.returns import TRIES_MAX
from federator.runtime.mqtt.wire import inbound_of, split_run
from federator.runtime.sharing.destination import ShareDestination
from federator.runtime.sharing.origin import ShareCounters, ShareOrigin
from tests.protocol.frames import made_frame
from tests.real.polling import until
from tests.transcripts import play, scenes

US, N2 = 1, 2
JOBS = ("g", "jobs/#")
EPOCH = 7


def packet(text):
    """``PAYLOAD`` at QoS 1 on jobs/1, or with ``,qos=0``, ``,topic=`` or ``,retain``."""
    payload, *options = text.split(",")
    fields = dict(option.partition("=")[::2] for option in options)
    qos = int(fields.get("qos", 1))
    return PublishPacket(
        fields.get("topic", "jobs/1"),
        payload.encode(),
        qos=QoS(qos),
        retain="retain" in fields,
        packet_id=5 if qos else None,
    ).write()


def shown(run):
    """The publications of a run, as ``packet`` takes them."""
    texts = []
    for raw in split_run(bytes(run)):
        found, _ = mqtt5.read(memoryview(raw))
        options = f",qos={found.qos.value}" * (found.qos.value != 1) + ",retain" * found.retain
        texts.append(bytes(found.payload).decode() + options)
    return " ".join(texts)


class OurBroker:
    """Keeps what is published; ``room`` packets of QoS 1 and 2 more are taken."""

    def __init__(self):
        self.published, self.offered, self.settled_through = [], 0, 0
        self.room, self.connected = 1_000, True

    def write_packets(self, parts, count):
        if self.connected:
            self.published.append(shown(b"".join(parts)))
        return self.connected

    def publish_packet(self, packet, packet_id_at, qos):
        if not self.room:
            return False
        self.room -= 1
        self.offered += 1
        self.published.append(shown(packet))
        return True


class Stage:
    """Origin and destination of broker 1, between connections that are recorded.

    ``members 1:2 2:1`` are two members of the group here and one at broker 2; then ``gone=2`` and
    ``orphan``. ``publish`` is what clients publish, ``parcel N`` what broker 2 sends, ``stand_in``
    what a stand-in gets, and ``wait`` lets time pass until something happens. Prints what is sent
    and published, and the counters that changed.
    """

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._agent()

    def do(self, command, *words):
        return self._loop.run_until_complete(self._obey(command, words))

    async def _obey(self, command, words):
        sent, published, counts = len(self.sent), len(self.broker.published), self._counts()
        if command == "settle":
            await until(lambda: not self.destination._settling, "all know of interest here")
        if command == "wait":
            await until(lambda: (len(self.sent), self._counts()) != (sent, counts), "news")
        told = list(getattr(self, f"_{command}", lambda: ())(*words) or ())
        told += self.sent[sent:]
        told += [
            f"publishes {' '.join(texts)}" for texts in [self.broker.published[published:]] if texts
        ]
        changed = {name: n for name, n in self._counts().items() if n != counts.get(name)}
        return told + [f"{name} {n}" for name, n in changed.items()]

    def close(self):
        self._loop.close()

    def _counts(self):
        return {"owes": len(self.origin.ledger), **to_builtins(self.counters)}

    def _agent(self, *options):
        fields = dict(option.split("=") for option in options)
        secret = fields.pop("secret", None)
        self.broker, self.counters, self.sent = OurBroker(), ShareCounters(), []
        self.reachable = True
        self.assignment = Assignment(US, stand_ins_max=8)
        self.origin = ShareOrigin(
            self_id=US,
            epoch=EPOCH,
            assignment=self.assignment,
            ledger=Ledger(LedgerParameters(**{name: int(n) for name, n in fields.items()})),
            counters=self.counters,
            send_to=self._send_to,
            publish_here=lambda run: self.destination.publish(run),
            allows_export=lambda topic: topic != secret,
            want_inbox=lambda: None,
        )
        self.destination = ShareDestination(
            assignment=self.assignment,
            wanted=FilterTrie(),
            data_link=self.broker,
            counters=self.counters,
            send_to=self._send_to,
            pass_on=self.origin.pass_on,
            settle_ms=0,
        )

    def _send_to(self, broker, parts, size, count):
        body = b"".join(parts)
        assert len(body) == size
        if self.reachable:
            said = unpack_parcel(memoryview(body))
            assert said.epoch == EPOCH
            if isinstance(said, Confirmation):
                ranges = " ".join(f"{first}-{last}" for first, last in said.ranges)
                self.sent.append(f"confirms {ranges} to {broker}")
            else:
                self.sent.append(f"parcel {said.number} to {broker}: {shown(said.run)}")
        return self.reachable

    def _members(self, *words):
        known, gone, orphans = Membership(), [], []
        for word in words:
            broker, _, count = word.partition(":")
            if count:
                known.add(MemberRecord(int(broker), int(count), False, *JOBS))
                known.reach(int(broker))
            elif word == "orphan":
                orphans = [JOBS]
            else:
                gone = [int(word.removeprefix("gone="))]
        self.assignment.update(known, orphans=frozenset(orphans))
        self.origin.on_members(gone)

    def _publish(self, *texts):
        run = b"".join(map(packet, texts))
        self.origin.on_publishes(memoryview(run), inbound_of(run))

    def _taken(self, *texts):
        run = b"".join(map(packet, texts))
        self.origin.on_taken(
            (found.topic, memoryview(run)[start:end], False)
            for found, start, end in inbound_of(run)
        )

    def _stand_in(self, *texts):
        run = b"".join(map(packet, texts))
        for inbound in inbound_of(run):
            fate = self.destination.take_back(inbound, memoryview(run)[inbound[1] : inbound[2]])
            yield fate.value

    def _stand_in_for_ever(self, text):
        fates = [next(self._stand_in(text)) for _ in range(TRIES_MAX)]
        assert len(set(fates[:-1])) == 1
        del self.broker.published[2:]
        yield f"{fates[0]}, then {fates[-1]}"

    def _parcel(self, number, *texts):
        body = memoryview(pack_parcel(EPOCH, int(number)) + b"".join(map(packet, texts)))
        came = made_frame(origin=N2, epoch=EPOCH, publications=len(texts) or 1, keys=b"", body=body)
        self.destination.on_parcel(came, unpack_parcel(body))

    def _confirmed(self, broker, number, epoch=EPOCH):
        ranges = ((int(number), int(number)),)
        self.origin.on_confirmation(int(broker), Confirmation(int(epoch), ranges))

    def _broker(self, **facts):
        for name, value in facts.items():
            setattr(self.broker, name, value)

    def _settled(self, through):
        self._broker(settled_through=int(through))

    def _room(self, packets):
        self._broker(room=int(packets))

    def _disconnected(self):
        self._broker(connected=False)

    def _reach(self, whether):
        self.reachable = whether == "yes"

    def _wants(self, early, *filters):
        """Ordinary subscribers want ``filters``; a parcel comes before other agents know."""
        for filter_ in filters:
            self.destination.wanted.add(filter_)
        self.destination.on_interest(frozenset(filters), frozenset())
        self._parcel(0, early)

    def _drops(self, *filters):
        for filter_ in filters:
            self.destination.wanted.discard(filter_)
        self.destination.on_interest(frozenset(), frozenset(filters))


@scenes(*Path(__file__).parent.glob("*.txt"))
def test_transcript(path, number):
    with closing(Stage()) as stage:
        play(path, number, stage)
