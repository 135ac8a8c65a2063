"""Gateways' reports of their sessions: whole ones count, within bounds."""

import pytest

from federator.protocol.controller import own_rows
from federator.protocol.controller.own_rows import SessionReports
from federator.protocol.messages.gateways import ReportedSession, SessionReport


def page(gateway, number, of, *, seq=1, clients=1):
    sessions = tuple(
        ReportedSession(f"{gateway}-{number}-{each}", True, True) for each in range(clients)
    )
    return SessionReport(gateway, 1, seq, number, of, sessions)


def clients(reports):
    return [session.client for session in reports.sessions()]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(own_rows, "REPORTS_BYTES_MAX", 1_000)
    monkeypatch.setattr(own_rows, "UNFINISHED_BYTES_MAX", 500)
    monkeypatch.setattr(own_rows, "SESSIONS_MAX", 10)


def test_the_report_that_is_unfinished_for_longest_gives_way():
    reports = SessionReports()
    for number in range(20):
        reports.on_page(page(f"forged-{number}", 0, 2), size=100, now_ms=0)

    reports.on_page(page("honest", 0, 2), size=100, now_ms=0)
    reports.on_page(page("honest", 1, 2), size=100, now_ms=0)

    assert clients(reports) == ["honest-0-0", "honest-1-0"]
    assert reports.refused == 16


def test_whole_reports_are_bounded_together_and_forgotten_with_their_gateway():
    reports = SessionReports()
    for number in range(4):
        reports.on_page(page(f"g{number}", 0, 1), size=300, now_ms=0)
    assert clients(reports) == ["g0-0-0", "g1-0-0", "g2-0-0"]
    assert reports.refused == 1

    reports.on_page(page("g0", 0, 1, seq=2), size=300, now_ms=20_000)
    reports.on_deadline(now_ms=30_000)
    assert clients(reports) == ["g0-0-0"]
    reports.on_page(page("late", 0, 1), size=500, now_ms=30_000)
    assert clients(reports) == ["g0-0-0", "late-0-0"]


def test_a_report_of_too_many_sessions_is_not_taken():
    reports = SessionReports()

    reports.on_page(page("g", 0, 2, clients=6), size=10, now_ms=0)
    reports.on_page(page("g", 1, 2, clients=6), size=10, now_ms=0)
    assert clients(reports) == []

    reports.on_page(page("g", 0, 1, seq=2), size=10, now_ms=0)
    assert clients(reports) == ["g-0-0"]
