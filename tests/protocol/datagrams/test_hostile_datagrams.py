"""Datagrams that were recorded and changed, and sealed ones of a neighbour gone mad.

``HOSTILE_INPUTS`` sets how many; the release check takes 1,000,000.
"""

import os
import random
import sys

import pytest

from federator.errors import DecodeError
from federator.protocol.datagrams import wire
from federator.protocol.datagrams.link import DatagramLink
from federator.protocol.datagrams.receiver import (
    PARTIAL_BYTES_MAX,
    PARTS_KEPT,
    READY_BYTES_MAX,
    WINDOWS_MAX,
)
from federator.protocol.datagrams.sender import Limits
from federator.protocol.trust.guard import DATA, DATAGRAM, Manner
from federator.runtime.datagrams.raptor import RaptorCoder
from tests.protocol.datagrams.road import Road
from tests.protocol.trust.key_maker import KeyMaker
from tests.protocol.trust.test_guard import shake
from tests.protocol.trust.test_hostile_payloads import changed, state

INPUTS = int(os.environ.get("HOSTILE_INPUTS", "4000"))
KIND = "datagram"


def recorded(plr=0.05):
    """Datagrams of all kinds, as one end sent them."""
    road = Road(4, plr=plr).usable()
    for n in range(300):
        road.offer(0, n.to_bytes(4, "big") * 30)
        road.offer(1, n.to_bytes(4, "big") * 600)
        road.run(7)
    kinds = {}
    for datagram in road.sent[0]:
        kinds.setdefault(datagram[0], []).append(datagram)
    assert set(kinds) == {wire.PART, wire.REPAIR, wire.REPORT, wire.PROBE}
    return [datagram for some in kinds.values() for datagram in some[-10:]]


@pytest.mark.parametrize("manner", [Manner.SIGNED, Manner.SEALED])
def test_no_changed_datagram_is_taken_and_none_leaves_a_trace(manner):
    rng = random.Random(7)
    maker = KeyMaker()
    one, two = maker.guard(1, manner=manner), maker.guard(2)
    shake(one, two)
    genuine = [(KIND, one.seal(DATAGRAM, KIND, datagram, 2)) for datagram in recorded()]
    frame = one.seal(DATA, "data", bytes(100), 2)
    originals = {datagram for _, datagram in genuine}
    for _, datagram in genuine[:10]:  # recorded: they came already
        two.unseal(DATAGRAM, KIND, datagram)
    before, taken = state(two), 0

    for _ in range(INPUTS // 2):
        match rng.randrange(10):
            case 0:
                datagram = rng.choice(genuine[:10])[1]
            case 1:
                datagram = frame
            case _:
                datagram = changed(rng.choice(genuine)[1], genuine, rng)
                if datagram in originals:
                    continue
        try:
            two.unseal(DATAGRAM, KIND, datagram)
            taken += 1
        except DecodeError:
            pass

    assert taken == 0
    assert state(two) == before
    for _, datagram in genuine[10:]:
        assert two.unseal(DATAGRAM, KIND, datagram)


def absurd(rng, genuine):
    """What a neighbour with good keys and bad intentions sends."""
    match rng.randrange(4):
        case 0:
            return rng.randbytes(rng.randrange(1_200))
        case 1:
            return bytes([rng.randrange(5)]) + rng.randbytes(rng.randrange(1_200))
        case 2:
            parts = rng.randrange(1, 65)
            place = rng.randrange(parts, parts + 64)
            symbol = rng.randbytes(8 * rng.randrange(2, 20))
            body = wire.repair_body(wire.Repair(rng.randrange(5), place, parts, symbol))
            head = wire.head(wire.REPAIR, stream=9, number=rng.randrange(2**32))
            return head + body
        case _:
            return changed(rng.choice(genuine)[1], genuine, rng)


def test_a_neighbour_gone_mad_breaks_nothing_and_memory_stays_bounded():
    rng = random.Random(11)
    genuine = [(KIND, datagram) for datagram in recorded()]
    link = DatagramLink(Limits(), RaptorCoder(), stream=7, now_ms=0)
    now_ms, sizes = 0, []

    for i in range(INPUTS):
        now_ms += rng.randrange(3)
        link.on_datagram(absurd(rng, genuine), now_ms=now_ms)
        if link.next_deadline_ms() <= now_ms:
            link.on_deadline(now_ms=now_ms)
        if i % 1_000 == 999:
            sizes.append(len(link.receiver._ready) + len(link.receiver._partials))

    receiver = link.receiver
    assert link.malformed > INPUTS // 10
    assert receiver.held_bytes <= PARTIAL_BYTES_MAX + READY_BYTES_MAX
    assert len(receiver._windows) <= WINDOWS_MAX
    assert len(receiver._parts) <= PARTS_KEPT
    assert max(sizes) <= 2 * wire.WINDOW
    assert sys.getsizeof(receiver._whole) <= 128
    assert link.sender.in_flight == 0
