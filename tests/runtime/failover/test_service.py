"""How often the session flow table is made anew."""

import time
from types import SimpleNamespace

from federator.config.sections import AgentFailoverSettings
from federator.protocol.controller.own_rows import SessionReports
from federator.protocol.discovery import ClientFlow
from federator.protocol.events import RowsChanged
from federator.protocol.forwarding.counters import DataCounters
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


def service(tmp_path, clients):
    told = []
    made = FailoverService(
        settings=AgentFailoverSettings(),
        address="",
        folder=tmp_path,
        discovery=SimpleNamespace(known=clients),
        counters=DataCounters(),
        guide=Guide(),
        may_tell=lambda filter: True,
        told=frozenset,
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


def busy():
    end_s = time.thread_time() + 0.05
    while time.thread_time() < end_s:
        pass
