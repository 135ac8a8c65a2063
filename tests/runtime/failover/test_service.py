"""How often the session flow table is made anew."""

import time
from types import SimpleNamespace

from federator.config.sections import AgentFailoverSettings
from federator.protocol.controller.own_rows import SessionReports
from federator.protocol.discovery import ClientFlow
from federator.protocol.events import RowsChanged
from federator.protocol.forwarding.counters import DataCounters
from federator.protocol.messages.session_records import FlowRow, encode_record
from federator.runtime.failover.service import FailoverService

STOOD_STILL_S = 0.3


class Clients:
    """A table of one client, over which the process is stopped for a while."""

    def __init__(self, work):
        self.table_revision = 1
        self._work = work

    def flow(self):
        self._work()
        filters = {f"s/{number}": 1 for number in range(self.table_revision)}
        return [ClientFlow("nomad", connected=True, keeps=True, filters=filters)]


class Guide:
    reports = SessionReports()

    def refresh(self):
        pass


def service(tmp_path, clients, *, known=frozenset()):
    told = []
    made = FailoverService(
        settings=AgentFailoverSettings(),
        address="",
        folder=tmp_path,
        discovery=SimpleNamespace(known=clients),
        counters=DataCounters(),
        guide=Guide(),
        may_tell=lambda filter: True,
        announced_records=lambda: known,
        handle=told.append,
    )
    return made, told


def walked(told):
    return sum(isinstance(event, RowsChanged) for event in told)


async def test_who_stood_still_over_the_table_looks_again_soon(tmp_path):
    clients = Clients(lambda: time.sleep(STOOD_STILL_S))
    made, told = service(tmp_path, clients)

    await made.report()
    clients.table_revision = 2
    soon_s = time.monotonic() + 10 * STOOD_STILL_S  # had it worked so long: 50 times
    while walked(told) < 2 and time.monotonic() < soon_s:
        await made.report()

    assert walked(told) == 2


async def test_who_worked_long_on_the_table_waits_before_the_next_time(tmp_path):
    clients = Clients(busy)
    made, told = service(tmp_path, clients)

    await made.report()
    clients.table_revision = 2
    await made.report()

    assert walked(told) == 1


async def test_what_was_told_and_is_so_no_more_is_taken_back(tmp_path):
    made, told = service(tmp_path, Clients(lambda: None), known=frozenset({record("gone")}))

    await made.report()

    (change,) = [event for event in told if isinstance(event, RowsChanged)]
    assert change == RowsChanged(frozenset({record("s/0")}), frozenset({record("gone")}))


async def test_nothing_is_told_twice(tmp_path):
    known = frozenset({record("s/0")})
    made, told = service(tmp_path, Clients(lambda: None), known=known)

    await made.report()

    assert walked(told) == 0


def record(filter):
    return encode_record(FlowRow("nomad", "sub", filter, keeps=True, qos=1))


def busy():
    end_s = time.thread_time() + 0.05
    while time.thread_time() < end_s:
        pass
