"""The ledger against a slow one that looks at messages one by one."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from lab.bench.wire import Ledger

RUN, OTHER = 7, 6
SENT = 40


class SlowLedger:
    """The same counts, by hand."""

    def __init__(self):
        self.seen = set()
        self.duplicates = self.disordered = self.foreign = 0

    def take(self, run, seq):
        if run != RUN or seq >= SENT:
            self.foreign += 1
        elif seq in self.seen:
            self.duplicates += 1
        else:
            if self.seen and seq < max(self.seen):
                self.disordered += 1
            self.seen.add(seq)


def take(ledger, messages, sent=SENT):
    runs = np.array([run for run, _ in messages], np.uint32)
    seqs = np.array([seq for _, seq in messages], np.uint64)
    ledger.take(runs, seqs, sent=sent)


def counts(ledger):
    return ledger.received, ledger.duplicates, ledger.disordered, ledger.foreign


@example([[(RUN, seq) for seq in range(SENT)], [(RUN, 3)]]).via("a late copy")
@example([[(RUN, seq) for seq in range(SENT + 1)]]).via("a number never published")
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from([RUN, RUN, RUN, OTHER]), st.integers(0, SENT + 3))),
        max_size=6,
    )
)
def test_whatever_arrives_is_counted_as_if_looked_at_one_by_one(reads):
    ledger, slow = Ledger(RUN), SlowLedger()

    for read in reads:
        take(ledger, read)
        for run, seq in read:
            slow.take(run, seq)

    expected = (len(slow.seen), slow.duplicates, slow.disordered, slow.foreign)
    assert counts(ledger) == expected


def test_one_missing_message_in_a_hundred_thousand_is_a_loss():
    ledger = Ledger(RUN)
    sent = 100_000

    for start in range(0, sent, 1_000):
        seqs = [seq for seq in range(start, start + 1_000) if seq != 31_337]
        take(ledger, [(RUN, seq) for seq in seqs], sent=sent)

    assert ledger.lost(sent) == 1
    assert counts(ledger) == (sent - 1, 0, 0, 0)
