"""What the tests of the custody log share: records as an origin makes them."""

import contextlib

import pytest

from federator.protocol.custody.ports import Record
from federator.runtime.custody.log import CustodyLog

BOOT = bytes(range(16))
T0_US = 1_700_000_000_000_000


def key(number):
    return number.to_bytes(8, "big")


def open_log(folder, **changes):
    given = {"bytes_max": 1 << 20, "age_max_s": 1e6, "boot": BOOT, "wall_clock_us": lambda: T0_US}
    return CustodyLog(folder / "custody", **(given | changes))


def make(log, filters_of_each, *, time_us=T0_US, body=b"body"):
    """Records for the next append, one for each set of filters."""
    heads = {}
    made = []
    for seq, filters in enumerate(filters_of_each, log.next_seq):
        keys = [key(number) for number in sorted(filters)]
        prevs = tuple(heads.get(k, log.head(k)) for k in keys)
        heads |= dict.fromkeys(keys, seq)
        made.append(Record(seq, time_us, seq % 7 + 1, b"".join(keys), prevs, body))
    return made


def add(log, *filters_of_each, **how):
    records = make(log, filters_of_each, **how)
    log.append(records)
    return records


def reopening(open_):
    """A fixture that opens in ``tmp_path`` as ``open_`` does, and closes what it opened before."""

    @pytest.fixture
    def opened(tmp_path):
        with contextlib.ExitStack() as last:

            def again(**how):
                last.close()
                return last.enter_context(contextlib.closing(open_(tmp_path, **how)))

            yield again

    return opened
