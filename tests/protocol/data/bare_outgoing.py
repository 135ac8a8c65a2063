"""What leaves broker 1 for broker 2, with nothing around it."""

from federator.protocol.data.features import Features
from federator.protocol.data.outgoing import Outgoing
from federator.protocol.data.transports import Transports
from federator.protocol.forwarding.counters import DataCounters
from federator.protocol.forwarding.frames import CHAIN_BYTES, KEY_BYTES, Frame
from federator.protocol.types import BrokerId, Epoch

ME, N2 = BrokerId(1), BrokerId(2)
TOPIC = "$fed/fed/data"


def bare_outgoing(transports=None):
    """With no feature but these transports."""
    features = Features(transports=transports or Transports())
    return Outgoing(ME, TOPIC, DataCounters(), features)


def send_frame(made, seq, body, *, flags=0, urgent=False):
    """Send a frame of ours with this body to broker 2; the publications sent."""
    frame = Frame(
        flags=flags, hop_limit=8, hops=0, sender=ME, origin=ME, epoch=Epoch(1), seq=seq,
        origin_time_us=0, publications=1, mask=1, keys=bytes(KEY_BYTES),
        body=memoryview(body), chain=bytes(CHAIN_BYTES) if flags else b"",
    )  # fmt: skip
    return made.send(frame, 0, ((N2, b"\x01"),), (body,), len(body), now_ms=0, urgent=urgent)
