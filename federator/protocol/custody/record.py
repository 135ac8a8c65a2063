"""What the origin keeps of a frame under custody.

Source: docs/protocol.md section 11.
"""

import msgspec


class Record(msgspec.Struct, frozen=True, gc=False):
    """A frame made of QoS 1 and 2 publications, as the origin keeps it.

    Attributes:
        seq: Its number: consecutive, from 1 in an epoch, but for leaps at starts (``CustodyLog``).
        time_us: The wall clock when it was made, in microseconds.
        publications: How many PUBLISH packets the body holds.
        keys: Filter keys of 8 bytes, ascending.
        prevs: For each key the number of the previous record with that key, 0 for none.
        body: The run of PUBLISH packets.
    """

    seq: int
    time_us: int
    publications: int
    keys: bytes
    prevs: tuple[int, ...]
    body: bytes
