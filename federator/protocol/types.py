"""Identifiers and units shared by every state machine."""

from typing import NewType

import msgspec

BrokerId = NewType("BrokerId", int)
"""Unique in the federation, 0 to ``BROKER_ID_MAX``."""

BROKER_ID_MAX = 2**32 - 1

Millis = NewType("Millis", int)
"""A monotonic instant or a span, in milliseconds. Never wall-clock time."""

Epoch = NewType("Epoch", int)
"""An agent's incarnation; grows at every start."""

EPOCH_MAX = 2**63 - 1

EPOCH_LEAP_MAX = 100 * 366 * 86_400_000
"""Milliseconds by which a clock may be wrong: no message moves our epoch further."""

ConnId = NewType("ConnId", int)
"""One of an agent's connections to neighbours' brokers; never reused within an epoch."""

Cost = NewType("Cost", int)
"""A path's cost: the sum of its links' costs, 1 each unless configured."""

UNREACHABLE = Cost(2**31)
"""The cost that retracts a route."""

CoreRank = tuple[int, BrokerId]
"""(operator priority, id): the smallest announcer of a filter is its core."""


class Now(msgspec.Struct, frozen=True, gc=False):
    """One instant by the two clocks of a process, read by the driver of the core.

    It is made for every read of a socket, so it is the fastest kind of class.
    """

    ms: Millis  # monotonic, for waiting
    us: int  # the wall clock, in microseconds since 1970, which people and brokers use
