from mqtt5 import PublishPacket, QoS

from federator.protocol.forwarding.frames import CUSTODY_FLAG, TAIL_FLAG, pack, unpack
from federator.protocol.messages.group_records import inbox_key
from federator.protocol.policy.link_policies import LinkPolicies
from federator.protocol.policy.rules import LinkRules
from federator.protocol.sharing.parcels import Confirmation, pack_confirmation, pack_parcel
from federator.protocol.types import BrokerId, Epoch
from tests.protocol.frames import made_frame

GUARDED, OTHER = BrokerId(2), BrokerId(3)


def packet(topic, *, qos=0):
    return PublishPacket(topic, b"x", qos=QoS(qos), packet_id=5 if qos else None).write()


def frame(*packets, sender=GUARDED, flags=0):
    body = b"".join(packets)
    return made_frame(origin=9, sender=sender, flags=flags, publications=len(packets), body=body)


def gates():
    return LinkPolicies({GUARDED: LinkRules(imports=["in/#"], exports=["out/#"], deny=["+/no"])})


def test_a_link_without_rules_is_not_even_looked_at():
    guard = gates()
    made = frame(b"no packet at all", sender=OTHER)

    assert guard.incoming(made) is made
    assert guard.outgoing(OTHER, made, [made.body]) is made
    assert guard.active
    assert not LinkPolicies().active


def test_what_cannot_be_read_does_not_cross_a_link_with_rules():
    assert gates().incoming(frame(b"\x30\xff", packet("in/a"))) is None


def test_a_frame_under_custody_crosses_empty_so_that_nobody_misses_it():
    guard = gates()
    made = frame(packet("secret", qos=1), flags=CUSTODY_FLAG)
    made.chain = bytes(8)

    crossed = guard.outgoing(GUARDED, made, [made.body])

    assert crossed is not None
    assert (crossed.publications, bytes(crossed.body), crossed.seq) == (0, b"", made.seq)
    assert unpack(pack(crossed)) == crossed


def test_a_tail_has_no_publications_and_crosses_as_it_is():
    guard = gates()
    tail = frame(flags=TAIL_FLAG)
    tail.body = memoryview(b"8 bytes.")

    assert guard.incoming(tail) is tail
    assert guard.outgoing(GUARDED, tail, [tail.body]) is tail


def test_parcels_for_shared_groups_obey_rules_and_confirmations_pass():
    guard = gates()
    stops, passes = packet("secret", qos=1), packet("out/a", qos=1)
    parcel = frame(pack_parcel(Epoch(1), 7) + stops, passes)
    confirmation = frame(pack_confirmation(Confirmation(Epoch(1), ((1, 9),))))
    parcel.keys = confirmation.keys = inbox_key(BrokerId(5))

    crossed = guard.outgoing(GUARDED, parcel, [parcel.body])

    assert crossed is not None
    assert bytes(crossed.body) == pack_parcel(Epoch(1), 7) + passes
    assert crossed.publications == 1
    assert guard.outgoing(GUARDED, confirmation, [confirmation.body]) is confirmation


def test_a_parcel_that_must_be_confirmed_crosses_empty_and_one_of_qos_0_does_not():
    guard = gates()
    owed = frame(pack_parcel(Epoch(1), 7) + packet("secret", qos=1))
    plain = frame(pack_parcel(Epoch(1), 0) + packet("secret"))
    owed.keys = plain.keys = inbox_key(BrokerId(5))

    crossed = guard.outgoing(GUARDED, owed, [owed.body])

    assert crossed is not None
    assert bytes(crossed.body) == pack_parcel(Epoch(1), 7)
    assert unpack(pack(crossed)) == crossed
    assert guard.outgoing(GUARDED, plain, [plain.body]) is None
    assert guard.withheld_out == 2
