"""When sessions are prepared, and what was missed is fetched. On brokers: real/test_failover."""

import asyncio

from federator.config.sections import AgentFailoverSettings
from federator.protocol.messages.session_records import FlowRow
from federator.protocol.types import BrokerId, Millis
from federator.runtime.failover.prepared_sessions import PreparedSessions
from federator.runtime.mqtt.endpoint import Endpoint
from lab.grid.processes.ports import free_ports
from tests.real.polling import until

ROWS = [FlowRow("nomad", "sub", "s/+", keeps=True, qos=1)]


class Here:
    """What the agent knows of one client, and what it was asked to fetch."""

    def __init__(self, *, connected):
        self.connected = connected
        self.filters = set()
        self.looked = 0
        self.fetched = []
        self.custody = asyncio.Event()
        self.custody.set()

    def _is_connected(self, client):
        self.looked += 1
        return self.connected

    def around(self):
        return {
            "connected_here": self._is_connected,
            "filters_here": lambda client: self.filters,
            "connected_elsewhere": lambda client: False,
            "caught_up": self.custody.wait,
            "in_federation": lambda filter: [filter],
            "expect": lambda filters, since_us: None,
            "fetch_again": lambda filters, since_us: self.fetched.append(filters),
        }


def stepping_in(here):
    (nobody,) = free_ports(1)
    settings = AgentFailoverSettings(prepare_sessions=True)
    prepared = PreparedSessions(
        settings=settings, endpoint=lambda: Endpoint("127.0.0.1", nobody), **here.around()
    )
    prepared.step_in(BrokerId(2), Millis(0), ROWS)
    return prepared


async def test_what_a_faster_client_missed_is_fetched_once_it_has_subscribed():
    here = Here(connected=True)
    prepared = stepping_in(here)
    await until(lambda: here.looked >= 3, "it is looked for")
    assert here.fetched == []

    here.filters.add("s/+")

    await until(lambda: here.fetched, "fetched")
    assert here.fetched == [["s/+"]]
    assert (prepared.prepared, prepared.refused) == (0, 0)


async def test_what_our_own_clients_said_before_is_in_custody_before_it_is_fetched():
    here = Here(connected=True)
    here.filters.add("s/+")
    here.custody.clear()
    stepping_in(here)
    await until(lambda: here.looked, "it is looked for")
    await asyncio.sleep(0.1)
    assert here.fetched == []

    here.custody.set()

    await until(lambda: here.fetched, "fetched")


async def test_the_session_of_one_who_left_before_it_had_subscribed_is_prepared():
    here = Here(connected=True)
    prepared = stepping_in(here)
    await until(lambda: here.looked >= 3, "it is looked for")

    here.connected = False

    await until(lambda: prepared.refused == 1, "our broker is asked, and is not there")


async def test_one_who_wants_something_else_now_does_not_keep_others_waiting_for_ever(monkeypatch):
    monkeypatch.setattr("federator.runtime.failover.prepared_sessions.SUBSCRIBE_POLLS", 3)
    here = Here(connected=True)
    here.filters.add("other/#")

    stepping_in(here)

    await until(lambda: here.fetched, "fetched")
