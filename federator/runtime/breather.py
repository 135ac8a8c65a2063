"""Repeated work that rests in between, so that it takes a small share of one core."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

SHARE_MAX = 0.02
"""Of one core."""


class Breather:
    """How long to rest after work that grows with a table.

    Measured in processor time of the calling thread: standing still costs nobody anything.

    Attributes:
        rest_s: How long to rest after what was done last, in seconds.
    """

    def __init__(self) -> None:
        self.rest_s = 0.0

    @contextmanager
    def working(self) -> Iterator[None]:
        """The work is done within."""
        started_s = time.thread_time()
        yield
        self.rest_s = (time.thread_time() - started_s) / SHARE_MAX
