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


def owe(ledger, to=2, run=b"x", *, count=1, now_ms=0):
    return ledger.owe(to, GROUPS, run, count, since_ms=now_ms, now_ms=now_ms)


def numbers(sends):
    return [owed.number for owed in sends]


def later(ledger, until_ms):
    """All that is due up to then: when, what, and whether it is sent (or given up)."""
    steps = []
    while (at_ms := ledger.next_deadline_ms()) is not None and at_ms <= until_ms:
        sends, lost = ledger.on_deadline(now_ms=at_ms)
        steps += [(at_ms, owed, True) for owed in sends]
        steps += [(at_ms, owed, False) for owed in lost]
    return steps


def test_a_parcel_is_sent_at_once_and_again_with_growing_gaps_until_confirmed():
    ledger = Ledger(SPANS)

    assert numbers(owe(ledger)) == [1]
    assert [at for at, _, _ in later(ledger, 12_000)] == [1_000, 3_000, 7_000, 11_000]
    ledger.confirm(2, [(1, 1)], now_ms=12_000)
    assert later(ledger, 30_000) == []
    assert len(ledger) == 0


def test_no_more_than_the_window_is_on_its_way_and_the_rest_follows_in_order():
    ledger = Ledger(SPANS)

    sent = [numbers(owe(ledger)) for _ in range(5)]
    more = ledger.confirm(2, [(1, 2)], now_ms=10)

    assert sent == [[1], [2], [3], [], []]
    assert numbers(more) == [4, 5]


def test_each_receiver_has_a_window_of_its_own():
    ledger = Ledger(SPANS)
    for _ in range(5):
        owe(ledger, to=2)

    assert numbers(owe(ledger, to=3)) == [1]


def test_a_receiver_that_is_gone_leaves_what_it_did_not_confirm_and_what_it_confirmed_lately():
    ledger = Ledger(SPANS)
    for _ in range(3):
        owe(ledger)
    ledger.confirm(2, [(1, 1)], now_ms=1_000)
    ledger.confirm(2, [(2, 2)], now_ms=5_000)

    again = ledger.gone(2)

    assert [owed.number for owed in again] == [2, 3]
    assert len(ledger) == 0
    assert ledger.bytes == 0
    assert ledger.gone(2) == []


def test_what_was_confirmed_is_kept_while_a_dead_receiver_might_go_unnoticed():
    ledger = Ledger(SPANS)
    owe(ledger)
    ledger.confirm(2, [(1, 1)], now_ms=1_000)
    later(ledger, 10_900)

    assert [owed.number for owed in ledger.gone(2)] == [1]


def test_what_was_confirmed_is_forgotten_once_nobody_can_need_it():
    ledger = Ledger(SPANS)
    owe(ledger)
    ledger.confirm(2, [(1, 1)], now_ms=1_000)
    later(ledger, 20_000)

    assert ledger.bytes == 0
    assert ledger.gone(2) == []
    assert ledger.next_deadline_ms() is None


def test_numbers_go_on_after_a_receiver_was_gone():
    ledger = Ledger(SPANS)
    owe(ledger)
    ledger.gone(2)

    assert numbers(owe(ledger)) == [2]


def test_what_nobody_confirms_is_given_up_when_it_is_too_old_and_makes_room():
    ledger = Ledger(SPANS)
    for _ in range(4):
        owe(ledger)

    lost = [owed.number for _, owed, sent in later(ledger, 70_000) if not sent]

    assert lost == [1, 2, 3, 4]
    assert ledger.bytes == 0


def test_without_room_confirmed_parcels_go_first_and_then_nothing_is_taken():
    ledger = Ledger(SPANS)
    owe(ledger, run=b"x" * 600)
    ledger.confirm(2, [(1, 1)], now_ms=10)

    assert owe(ledger, run=b"x" * 600, now_ms=20) is not None
    assert owe(ledger, run=b"x" * 600, now_ms=30) is None
    assert ledger.bytes == 600


def test_what_is_held_counts_ages_and_is_given_back_in_order():
    ledger = Ledger(SPANS)
    for at_ms, run in ((0, b"a" * 400), (10_000, b"b" * 400)):
        assert ledger.hold(Held(GROUPS, run, 2, at_ms), now_ms=at_ms)
    assert not ledger.hold(Held(GROUPS, b"c" * 400, 2, 10_000), now_ms=10_000)
    assert (len(ledger), ledger.bytes) == (4, 800)

    lost = [held.run[:1] for _, held, _ in later(ledger, 65_000)]

    assert lost == [b"a"]
    assert [held.run[:1] for held in ledger.take_held()] == [b"b"]
    assert (len(ledger), ledger.bytes) == (0, 0)


def test_strange_confirmations_change_nothing():
    ledger = Ledger(SPANS)
    owe(ledger)

    assert ledger.confirm(7, [(1, 1)], now_ms=1) == []
    assert ledger.confirm(2, [(0, 0), (2, 2**63), (9, 3)], now_ms=1) == []
    assert len(ledger) == 1


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
        steps = self.ledger.owe(to, GROUPS, run, 1, since_ms=self.now_ms, now_ms=self.now_ms)
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
