"""What a neighbour asks for tells what may be missing there."""

from types import SimpleNamespace

from federator.protocol.custody.origin import ASKED_MS, Origin
from federator.protocol.forwarding.frames import OwnFrames
from federator.protocol.messages.control import AskedChain, RepairRequest
from federator.protocol.types import BrokerId, Epoch, Millis, Now
from tests.protocol.custody.archive import Archive
from tests.protocol.custody.test_custody import EPOCH, ORIGIN, A

HUB, OTHER = BrokerId(2), BrokerId(3)


class Log(Archive):
    epoch = EPOCH
    next_seq = 4


def origin_of(archive):
    sent = []
    own = OwnFrames(ORIGIN, Epoch(EPOCH), hop_limit=9)
    nothing = SimpleNamespace(prove=lambda frame: None, sign=lambda *args: None)
    outgoing = SimpleNamespace(send_repair=lambda first, frame, now_ms: not sent.append(frame))
    disk = SimpleNamespace(log=archive, keep_s=60)
    return Origin(disk, outgoing, None, own, nothing), sent


def ask(origin, after, ms, *, by=HUB, asked_us=0):
    chains = (AskedChain(A, after, 0),)
    request = RepairRequest(ORIGIN, Epoch(EPOCH), (by,), chains, asked_us)
    origin.on_request(request, Now(Millis(ms), 1_000))


def test_what_was_repeated_may_be_missing_until_it_is_not_asked_for_again():
    archive = Log()
    for time_us in (100, 200, 300):
        archive.make((A,), time_us=time_us)
    origin, sent = origin_of(archive)
    assert origin.repeated_since_us(HUB, Millis(0)) == 0

    ask(origin, 1, 0)
    assert [frame.seq for frame in sent] == [2, 3]
    assert origin.repeated_since_us(HUB, Millis(1)) == 200
    assert origin.repeated_since_us(OTHER, Millis(1)) == 0
    ask(origin, 2, 1_000)
    assert origin.repeated_since_us(HUB, Millis(1_000)) == 200, "the answer may be lost as well"

    ask(origin, 3, ASKED_MS, asked_us=1)
    assert origin.repeated_since_us(HUB, Millis(2 * ASKED_MS - 1)) == 200, "it still asks"
    assert origin.repeated_since_us(HUB, Millis(2 * ASKED_MS)) == 0
