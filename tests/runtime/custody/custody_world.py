"""What the tests of the custody log share: records as an origin makes them, and a stupid log."""

from bisect import bisect_right

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


class StupidLog:
    """Everything in one list."""

    def __init__(self):
        self.records = []
        self.oldest = 1

    def held(self):
        return [record for record in self.records if record.seq >= self.oldest]

    def chain(self, one):
        return [r.seq for r in self.records if one in [r.keys[i : i + 8] for i in at(r)]]

    def head(self, one):
        return max(self.chain(one), default=0)

    def select(self, one, after, limit):
        seqs = [seq for seq in self.chain(one) if seq >= self.oldest]
        start = bisect_right(seqs, after)
        return seqs[start : start + limit]

    def floor(self, one, after):
        return max([seq for seq in self.chain(one) if seq < self.oldest] + [after])

    def first_since(self, one, time_us):
        latest = 0
        for record in self.records:
            latest = max(latest, record.time_us)
            if record.seq >= self.oldest and record.seq in self.chain(one) and latest >= time_us:
                return record.seq
        return None


def at(record):
    return range(0, len(record.keys), 8)
