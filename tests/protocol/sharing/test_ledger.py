"""What is owed is sent until confirmed, given to others when its receiver is gone, and bounded."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from federator.protocol.sharing.ledger import Held, Ledger, LedgerParameters

GROUPS = (("g", "jobs/#"),)
SPANS = LedgerParameters(
    bytes_max=1_000,
    keep_ms=60_000,
    linger_ms=2_000,
    detection_ms=10_000,
    retry_min_ms=1_000,
    retry_max_ms=4_000,
    window=3,
)


def later(ledger, until_ms):
    """All that is due up to then: when, what, and whether it is sent (or given up)."""
    steps = []
    while (at_ms := ledger.next_deadline_ms()) is not None and at_ms <= until_ms:
        sends, lost = ledger.on_deadline(now_ms=at_ms)
        steps += [(at_ms, owed, True) for owed in sends]
        steps += [(at_ms, owed, False) for owed in lost]
    return steps


class Keeping(RuleBasedStateMachine):
    """Whatever happens: owed, confirmed, gone or lost, and nothing else; bytes add up."""

    def __init__(self):
        super().__init__()
        self.ledger = Ledger(SPANS)
        self.now_ms = 0
        self.next_name = 0
        self.open = {}  # (to, number) -> run
        self.ended = []

    @rule(to=st.integers(2, 3), size=st.integers(8, 300))
    def publish(self, to, size):
        run = b"%08d" % self.next_name + b"x" * (size - 8)
        self.next_name += 1
        steps = self.ledger.owe(to, Held(GROUPS, run, 1, self.now_ms), now_ms=self.now_ms)
        if steps is None:
            assert sum(map(len, self.open.values())) + size > SPANS.bytes_max
        else:
            taken = [o for o in self.ledger._accounts[to].owed.values() if o.run == run]
            self.open[to, taken[0].number] = run

    @rule(to=st.integers(2, 3), first=st.integers(1, 12), many=st.integers(0, 3))
    def confirm(self, to, first, many):
        before = {key for key in self.open if key[0] == to}
        self.ledger.confirm(to, [(first, first + many)], now_ms=self.now_ms)
        still = {(to, n) for n in self.ledger._accounts[to].owed} if before else set()
        for key in before - still:
            assert first <= key[1] <= first + many
            del self.open[key]

    @rule(to=st.integers(2, 3))
    def gone(self, to):
        again = {owed.run for owed in self.ledger.gone(to)}
        mine = {key for key in self.open if key[0] == to}
        assert {self.open[key] for key in mine} <= again
        for key in mine:
            del self.open[key]

    @rule(span_ms=st.integers(1, 20_000))
    def wait(self, span_ms):
        until_ms = self.now_ms + span_ms
        for _, owed, sent in later(self.ledger, until_ms):
            assert self.open[owed.to, owed.number] == owed.run
            if not sent:
                del self.open[owed.to, owed.number]
        self.now_ms = until_ms

    @precondition(lambda self: self.open)
    @rule()
    def what_is_open_is_tried_again(self):
        steps = later(self.ledger, self.now_ms + SPANS.retry_max_ms)
        self.now_ms += SPANS.retry_max_ms
        tried = {(owed.to, owed.number) for _, owed, sent in steps if sent}
        for _, owed, sent in steps:
            if not sent:
                self.open.pop((owed.to, owed.number))
        oldest = {}
        for to, number in sorted(self.open):
            oldest.setdefault(to, (to, number))
        assert set(oldest.values()) <= tried

    @invariant()
    def bounded_and_complete(self):
        assert self.ledger.bytes <= SPANS.bytes_max
        assert len(self.ledger) == len(self.open)


Keeping.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestKeeping = Keeping.TestCase
