"""Cuts and kills on real processes: QoS 1 and 2 lose nothing, repeat nothing, and keep their order.

Each test is a short chaos run with few brokers whose roles are fixed, so that every fault hits
where it hurts. A cut of 10 minutes, by hand: ``script/chaos --rows 1 --columns 2 --redundancy 1
--rate 200 --faults link-cut --rounds 1 --hold-s 600``.
"""

from io import StringIO

import pytest
from rich.console import Console

from lab.chaos.layout import Layout, Subscriber
from lab.chaos.run import ChaosRun, Plan
from lab.chaos.verdict import render
from lab.grid.topology import Grid

HOLD_S = 4.0
"""Longer than the hello timeout: neighbours notice."""

RATE = 100
TOPICS = ("chaos/0/temp", "chaos/0/state")


def layout(*, origin, relays, destination, qos=1):
    subscribers = (
        Subscriber("all", destination, "chaos/#", qos),
        Subscriber("some", destination, f"chaos/+/{TOPICS[0].rpartition('/')[2]}", qos),
    )
    return Layout((origin,), (destination,), relays, dict.fromkeys(TOPICS, origin), subscribers)


def victims(outcome, kind):
    return {each.what.split(":")[0] for each in outcome.happened if each.phase == kind}


async def hurt(folder, grid, clients, *faults, **options):
    """The outcome of a chaos run; fails with its verdict when a promise was broken."""
    plan = Plan(
        rows=grid.rows, columns=grid.columns, minutes=0, rate=RATE, classes=faults,
        sys_interval_s=1, hold_s=HOLD_S,
        **{"seed": 1, "qos": (1,), "rounds": 1, "redundancy": 1, **options},
    )  # fmt: skip
    outcome = await ChaosRun(plan, folder, small_disks=False, layout=clients).run()
    said = Console(file=StringIO(), width=132)
    said.print(render(outcome))
    assert outcome.held, said.file.getvalue()
    assert sorted(outcome.counts.keys() - {"none"}) == sorted(faults)
    return outcome


KILLS = ("link-cut", "broker-kill-relay", "agent-kill-origin", "agent-kill-destination")


@pytest.mark.parametrize(
    ("strategy", "faults"),
    [("mesh", (*KILLS, "half-open", "agent-kill-relay")), ("shortest-path", KILLS)],
)
@pytest.mark.few(1)
async def test_a_chain_keeps_every_message_through_cuts_and_kills(tmp_path, strategy, faults):
    """There is no other way: what a link or a relay lost is sent again from the origin's log."""
    clients = layout(origin=0, relays=(1,), destination=2)

    outcome = await hurt(tmp_path, Grid(1, 3), clients, *faults, strategy=strategy)

    for fault in KILLS:
        counts = outcome.counts[fault]
        assert counts.attempted > RATE * HOLD_S / 2
        assert counts.slowest_s > HOLD_S / 2, f"{fault}: nothing had to wait"


@pytest.mark.parametrize(
    ("strategy", "redundancy"), [("mesh", 1), ("mesh", 2), ("shortest-path", 1)]
)
@pytest.mark.few(1)
async def test_a_ring_keeps_every_message_when_any_relay_dies(tmp_path, strategy, redundancy):
    """Seed 0 draws each relay's broker and each relay's agent once in two rounds."""
    clients = layout(origin=0, relays=(1, 2), destination=3)
    faults = ("broker-kill-relay", "agent-kill-relay")

    outcome = await hurt(
        tmp_path,
        Grid(2, 2),
        clients,
        *faults,
        rounds=2,
        redundancy=redundancy,
        strategy=strategy,
        seed=0,
    )

    for fault, process in (("broker-kill-relay", "broker"), ("agent-kill-relay", "agent")):
        assert victims(outcome, fault) == {f"{fault} {process} {relay}" for relay in (1, 2)}


@pytest.mark.full
async def test_qos_2_is_as_safe(tmp_path):
    clients = layout(origin=0, relays=(), destination=1)
    faults = ("link-cut", "agent-kill-origin", "agent-kill-destination")

    await hurt(tmp_path, Grid(1, 2), clients, *faults, qos=(2,))
