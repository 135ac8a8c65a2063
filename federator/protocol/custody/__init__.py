"""QoS 1 and 2 across the federation: nothing lost, nothing twice, in order.

The origin keeps what it sent in a log; whoever has subscribers counts along and asks for what is
missing. Relays keep nothing. It is a newspaper with numbered issues: the reader who finds number 7
after number 5 writes to the publisher, and the newsagents in between need no archive.

Frames made of QoS 1 and 2 publications are numbered per origin. Per filter they form a *chain*:
each frame names, for each of its filters, the frame before it on that filter. So a reader of one
filter notices a gap without knowing anything about the others.

Source: docs/protocol.md section 11; negative acknowledgements as in NORM (RFC 5740) and PGM
(RFC 3208).
"""

from federator.protocol.custody.chains import Chained, Delivery
from federator.protocol.custody.custodian import Custodian
from federator.protocol.custody.destination import Destination
from federator.protocol.custody.followed import HELD_BYTES_MAX
from federator.protocol.custody.owed import Owed
from federator.protocol.custody.ports import CustodyContext, Disk, Positions
from federator.protocol.custody.receiver import Receiver
from federator.protocol.custody.record import Record
from federator.protocol.custody.repairs import answer
from federator.protocol.custody.tails import Tails

__all__ = [
    "HELD_BYTES_MAX",
    "Chained",
    "Custodian",
    "CustodyContext",
    "Delivery",
    "Destination",
    "Disk",
    "Owed",
    "Positions",
    "Receiver",
    "Record",
    "Tails",
    "answer",
]
