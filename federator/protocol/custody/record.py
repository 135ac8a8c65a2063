"""What the origin keeps of a frame under custody.

Source: docs/protocol.md section 11.
"""

import msgspec


class Record(msgspec.Struct, frozen=True, gc=False):
    """A frame made of QoS 1 and 2 publications, as the origin keeps it.

    Numbers are consecutive, from 1 in an epoch, but for leaps at starts (``CustodyLog``).
    """

    seq: int
    time_us: int  # the wall clock when it was made, in microseconds
    publications: int  # how many PUBLISH packets the body holds
    keys: bytes  # of filters, 8 bytes each, ascending
    prevs: tuple[int, ...]  # for each key the number of the record before on it, 0 for none
    body: bytes  # the run of PUBLISH packets
