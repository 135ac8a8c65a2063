"""The grid of docker-compose.yml under the faults that a site sees, on a real engine."""

import contextlib
import itertools
import json
import sys
import threading

import pytest

from lab.grid.topology import Link
from tests.containers.clients import Publisher, Subscriber
from tests.containers.compose_grid import FIRST_PORT, GATEWAY_PORTS, ComposeGrid, until

BROKERS = range(9)
RATE_PER_S = 200
LIVE_MS = 60_000
numbers = itertools.count()


def port(broker: int) -> int:
    return FIRST_PORT + broker


@contextlib.contextmanager
def everybody(stage: str, brokers=BROKERS):
    """A subscriber and a publisher on each broker."""
    with contextlib.ExitStack() as stack:
        subscribers = {
            b: stack.enter_context(Subscriber(f"{stage}-sub-{b}", port(b), f"{stage}/#"))
            for b in brokers
        }
        publishers = {
            b: stack.enter_context(Publisher(f"{stage}-pub-{b}", port(b))) for b in brokers
        }
        yield subscribers, publishers


def until_all_reach_all(publishers, subscribers, stage: str) -> None:
    """Publish from each of ``publishers`` until something from there reached all ``subscribers``.

    What is published while ways are found again may come later; here it matters that it comes.
    """
    sent: dict[int, set[bytes]] = {broker: set() for broker in publishers}

    def reached(broker: int) -> bool:
        return all(sent[broker] & subscriber.seen.keys() for subscriber in subscribers.values())

    def served() -> bool:
        for broker, publisher in publishers.items():
            if not reached(broker):
                payload = f"{broker} {next(numbers)}".encode()
                sent[broker].add(payload)
                publisher.publish(f"{stage}/{broker}", payload)
        return all(map(reached, publishers))

    until(served, f"{stage}: everybody on {sorted(publishers)} reaches {sorted(subscribers)}")


def test_what_is_published_on_any_broker_arrives_on_every_other_and_through_gateways(
    grid: ComposeGrid,
):
    with (
        everybody("any") as (subscribers, publishers),
        Subscriber("any-west", GATEWAY_PORTS["west"], "any/#") as west,
        Subscriber("any-east", GATEWAY_PORTS["east"], "any/#") as east,
    ):
        until_all_reach_all(publishers, {**subscribers, 9: west, 10: east}, "any")


def test_the_dashboard_is_live_and_draws_all_nine_and_a_report_can_be_had(grid: ComposeGrid):
    def shows_nine_of_now() -> bool:
        told = json.loads(grid.page("dashboard", "/live") or b"{}")
        age_ms = told["now_ms"] - told["newest_ms"] if told.get("newest_ms") else LIVE_MS
        return age_ms < LIVE_MS and "9 of 9" in told["fragments"]["tiles"]

    until(shows_nine_of_now, "the dashboard shows nine brokers, of now")

    assert grid.report().lstrip().startswith("<!doctype html>")


def test_the_console_knows_all_nine_and_what_the_dashboard_holds_of_before(grid: ComposeGrid):
    def knows_all_nine() -> bool:
        told = (grid.page("console", "/metrics") or b"").decode().splitlines()
        wanted = {"brokers": 9, "brokers_down": 0, "links": 12, "links_down": 0}
        return {f"federator_console_{name} {n}.0" for name, n in wanted.items()} <= set(told)

    def holds_something() -> bool:
        told = json.loads(grid.page("console", "/api/past?broker=4&span=3600") or b"{}")
        return bool(told.get("newest_ms"))

    until(knows_all_nine, "the console knows nine brokers and their twelve links")
    until(holds_something, "the console is told of before by the dashboard")


@pytest.mark.parametrize("kind", ["broker", "agent"])
@pytest.mark.parametrize("dead", BROKERS)
def test_any_one_container_of_a_site_may_be_killed_and_the_others_go_on(
    grid: ComposeGrid, dead: int, kind: str
):
    stage = f"kill-{kind}-{dead}"
    with everybody(stage) as (subscribers, publishers):
        until_all_reach_all(publishers, subscribers, stage)
        container = grid.container(f"{kind}-{dead}")
        container.kill()
        try:
            alive = [broker for broker in BROKERS if broker != dead]
            until_all_reach_all(
                {b: publishers[b] for b in alive}, {b: subscribers[b] for b in alive}, stage
            )
        finally:
            container.start()
        grid.until_ready()

        until_all_reach_all(publishers, subscribers, stage)


@pytest.mark.parametrize("service", ["gateway-west", "collector"])
def test_the_brokers_go_on_without_a_gateway_or_the_collector(grid: ComposeGrid, service: str):
    container = grid.container(service)
    with (
        everybody(service, [0, 8]) as (subscribers, publishers),
        Subscriber(f"{service}-east", GATEWAY_PORTS["east"], f"{service}/#") as east,
    ):
        container.kill()
        try:
            until_all_reach_all(publishers, {**subscribers, 9: east}, service)
        finally:
            container.start()
    until(lambda: grid.is_healthy(service), f"{service} is healthy")


def test_a_program_that_ends_by_itself_is_started_again(grid: ComposeGrid):
    container = grid.container("agent-4")
    kill_it = "import os; os.kill(int(open('/proc/1/task/1/children').read().split()[0]), 9)"
    container.exec_run(["python3", "-c", kill_it])

    until(lambda: grid.container("agent-4").attrs["RestartCount"] > 0, "agent-4 is started again")
    grid.until_ready()


def test_both_sides_of_a_partition_go_on_and_lose_nothing_when_it_heals(grid: ComposeGrid):
    west, east = [0, 3, 6], [1, 2, 4, 5, 7, 8]
    links = [link for link in grid.topology.links if (link.a in west) != (link.b in west)]
    assert links == [Link(0, 1), Link(3, 4), Link(6, 7)]

    with everybody("split") as (subscribers, publishers):
        until_all_reach_all(publishers, subscribers, "split")
        grid.cut(links)
        try:
            for side in (west, east):
                until_all_reach_all(
                    {b: publishers[b] for b in side}, {b: subscribers[b] for b in side}, "split"
                )
            for broker in BROKERS:
                publishers[broker].publish("split/said", f"cut off at {broker}".encode())
            for side, other in ((west, east), (east, west)):
                own, foreign = (
                    {f"cut off at {b}".encode() for b in half} for half in (side, other)
                )
                until(
                    lambda side=side, own=own: all(own <= subscribers[b].seen.keys() for b in side),
                    f"{side} hear each other",
                )
                assert not any(foreign & subscribers[b].seen.keys() for b in side)
        finally:
            grid.heal(links)
        everything = {
            payload for publisher in publishers.values() for payload in publisher.published
        }

        for broker in BROKERS:
            until(
                lambda broker=broker: everything <= subscribers[broker].seen.keys(),
                f"broker {broker} has what was published on either side",
            )
        grid.until_ready()


@contextlib.contextmanager
def publishing(*publishers: Publisher, stage: str):
    """Each of them publishes, together at ``RATE_PER_S``."""
    done = threading.Event()
    rate = RATE_PER_S / len(publishers)
    threads = [
        threading.Thread(target=p.publish_until, args=(done.is_set, f"{stage}/{p.name}", rate))
        for p in publishers
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def until_all_have_all(publishers, subscribers, capsys) -> None:
    """All that was published is acknowledged, and has arrived; says what came twice."""
    published = {payload for publisher in publishers for payload in publisher.published}
    for publisher in publishers:
        until(publisher.all_acknowledged, f"all of {publisher.name} are acknowledged")
    try:
        for subscriber in subscribers:
            until(lambda s=subscriber: published <= s.seen.keys(), f"{subscriber.name} has all")
    finally:
        told = f"{len(published)} published"
        for s in subscribers:
            lost = sorted(published - s.seen.keys(), key=lambda one: (len(one), one))
            told += f"; {s.name}: {len(lost)} lost, {s.seen.total() - len(s.seen)} twice"
            told += f" ({lost[:3]} to {lost[-3:]})" if lost else ""
        with capsys.disabled():
            sys.stdout.write(f"\n{told}\n")


def test_a_rolling_restart_of_all_nine_under_traffic_loses_nothing(grid: ComposeGrid, capsys):
    with (
        Subscriber("roll-2", port(2), "roll/#") as at_2,
        Subscriber("roll-7", port(7), "roll/#") as at_7,
        Publisher("roll-6", port(6)) as from_6,
        Publisher("roll-1", port(1)) as from_1,
    ):
        publishers, subscribers = [from_6, from_1], [at_2, at_7]
        until_all_reach_all(dict(enumerate(publishers)), dict(enumerate(subscribers)), "roll")
        with publishing(*publishers, stage="roll"):
            for broker in BROKERS:
                grid.container(f"broker-{broker}").restart(timeout=10)
                grid.container(f"agent-{broker}").restart(timeout=10)
                grid.until_ready()

        until_all_have_all(publishers, subscribers, capsys)


def test_a_broker_that_was_drained_may_be_restarted_without_loss_to_gateways_clients(
    grid: ComposeGrid, capsys
):
    with (
        Subscriber("moved-west", GATEWAY_PORTS["west"], "moved/#") as at_west,
        Publisher("moved-east", GATEWAY_PORTS["east"]) as from_east,
        Publisher("moved-6", port(6)) as from_6,
    ):
        publishers = [from_east, from_6]
        until_all_reach_all(dict(enumerate(publishers)), {0: at_west}, "moved")
        with publishing(*publishers, stage="moved"):
            for _ in range(2):
                here = grid.broker_of_client("gateway-west", "moved-west")
                assert grid.run(f"agent-{here}", f"federator drain {here}").exit_code == 0
                until(
                    lambda here=here: (
                        grid.broker_of_client("gateway-west", "moved-west") not in (here, None)
                    ),
                    f"the client is moved away from broker {here}",
                )
                grid.container(f"broker-{here}").restart(timeout=10)
                grid.container(f"agent-{here}").restart(timeout=10)
                grid.until_ready()
                assert grid.run(f"agent-{here}", f"federator undrain {here}").exit_code == 0

        until_all_have_all(publishers, [at_west], capsys)
