from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.loops import accounts as loop_accounts
from federator.protocol.loops.accounts import LoopAccounts


def test_each_publication_let_in_is_taken_back_once():
    accounts = LoopAccounts(window_ms=100)
    accounts.expect("m", now_ms=0)
    accounts.expect("m", now_ms=10)

    assert [accounts.take("m", now_ms=20) for _ in range(3)] == [True, True, False]


def test_what_was_delivered_may_come_back_once_however_often_it_was():
    accounts = LoopAccounts(window_ms=100)
    accounts.expect("m", delivered=True, now_ms=0)
    accounts.expect("m", delivered=True, now_ms=10)

    assert [accounts.take("m", now_ms=20) for _ in range(2)] == [True, False]


def test_nothing_is_expected_after_its_time():
    accounts = LoopAccounts(window_ms=100)
    accounts.expect("m", now_ms=0)
    accounts.expect("n", now_ms=0)

    assert accounts.take("m", now_ms=100)
    assert not accounts.take("n", now_ms=101)


def test_the_oldest_are_forgotten_beyond_the_bound(monkeypatch):
    monkeypatch.setattr(loop_accounts, "EXPECTED_MAX", 2)
    accounts = LoopAccounts(window_ms=100)
    for digest in ("a", "b", "a", "c"):
        accounts.expect(digest, now_ms=0)

    assert len(accounts) == 2
    assert not accounts.take("b", now_ms=0)
    assert accounts.take("a", now_ms=0)


@given(st.lists(st.tuples(st.sampled_from("ei t"), st.sampled_from("mn"))))
def test_no_more_is_taken_than_was_let_in_or_delivered(steps):
    accounts = LoopAccounts(window_ms=100)
    balance = Counter()
    for step, digest in steps:
        if step == "e":
            accounts.expect(digest, now_ms=0)
            balance[digest] += 1
        elif step == "i":
            accounts.expect(digest, delivered=True, now_ms=0)
            balance[digest] = max(balance[digest], 1)
        else:
            assert accounts.take(digest, now_ms=0) == (balance[digest] > 0)
            balance[digest] -= balance[digest] > 0
