"""Payloads that were recorded and changed: none is believed, none raises anything else, none leaves
a trace. ``HOSTILE_INPUTS`` sets how many; the release check takes 100,000.
"""

import os
import random

import pytest

from federator.errors import DecodeError
from federator.protocol.messages.codec import encode
from federator.protocol.messages.control import Bye, CoreAnn, Solicit
from federator.protocol.trust.guard import CONTROL, DATA, Manner
from tests.protocol.trust.key_maker import KeyMaker
from tests.protocol.trust.test_guard import ANN, greet, hear, hello, shake

INPUTS = int(os.environ.get("HOSTILE_INPUTS", "4000"))


def recorded(one):
    """(kind, payload) as 1 sends them to 2, each fresh."""
    seal = one.seal
    return [
        ("hello", one.greet("hello", encode(hello(1)), 2)),
        ("hello", one.greet("hello", encode(hello(1)), None)),
        ("ctl", one.greet("ctl", encode(Bye(1, 7, 1)), None, will=True)),
        ("core_ann", seal(CONTROL, "core_ann", encode(one.prove(ANN)), 2)),
        ("ctl", seal(CONTROL, "ctl", encode(Solicit(1, 5, 7, 3, 9)), 2)),
        ("data", seal(DATA, "data", b"\x02" + bytes(100), 2)),
        ("core_ann", encode(CoreAnn(1, 0, -9, 9, 9, 0, True, (), (), 0, 0))),
        ("hello", encode(hello(0))),
        ("data", b"\x02" + bytes(100)),
    ]


def changed(payload, others, rng):
    data = bytearray(payload)
    match rng.randrange(6):
        case 0:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case 1:
            del data[rng.randrange(len(data)) :]
        case 2:
            data += rng.randbytes(rng.randrange(1, 40))
        case 3:
            other = rng.choice(others)[1]
            at = rng.randrange(1, max(2, min(len(data), len(other)) - 1))
            data = bytearray(other[:at] + data[at:])
        case 4:
            at = rng.randrange(len(data))
            data[at : at + 8] = rng.randbytes(8)
        case _:
            data = bytearray(
                rng.choice((b"S", b"M", b"C", b"")) + rng.randbytes(rng.randrange(300))
            )
    return bytes(data)


def state(guard):
    return [
        (id_, peer.agreement.name, peer.counter, peer.holds, sorted(peer._keys))
        for id_, peer in guard._peers.items()
    ]


@pytest.mark.parametrize("seed", [1, 2])
def test_no_changed_payload_is_believed(seed):
    rng = random.Random(seed)
    maker = KeyMaker()
    one = maker.guard(1, manner=Manner.SEALED if seed % 2 else Manner.SIGNED)
    two = maker.guard(2)
    shake(one, two)
    genuine = recorded(one)
    originals = {payload for _, payload in genuine[:6]}
    before, believed = state(two), 0

    for _ in range(INPUTS):
        kind, payload = rng.choice(genuine)
        payload = changed(payload, genuine, rng)
        if payload in originals:
            continue
        try:
            if kind == "data":
                two.unseal(DATA, "data", payload)
            else:
                hear(two, kind, payload)
            believed += 1
        except DecodeError:
            pass

    assert believed == 0
    assert state(two) == before
    for kind, payload in genuine[1:6]:  # the genuine ones are still to be read, once each
        if kind == "data":
            assert two.unseal(DATA, "data", payload)
        else:
            assert hear(two, kind, payload)
    assert greet(one, two)
