"""Honest traffic beside an attack: all of it, once, and no loop or link that stops for it.

These tests run beside others on busy machines, where messages are late and hellos, too: they assert
what holds all the same. With ``ATTACK_FIGURES`` in the environment each test adds its figures to
that file, as a line of JSON; ``script/attacks`` does so on an idle machine and holds them against
the bars of docs/security.md.
"""

import contextlib
import json
import math
import os
import time
from pathlib import Path

from federator.errors import LinkError
from lab.grid.processes.agent import AgentProcess
from tests.real import turns
from tests.real.agent_log import named
from tests.real.polling import until

FIGURES = "ATTACK_FIGURES"

ENOUGH = 100
"""So many are judged at least: the attack may be over sooner."""

TURN_MS = 500
"""A turn of a loop, at most, in processor time; usually below 20."""


@contextlib.asynccontextmanager
async def undisturbed(row, publisher, *subscribers, processes):
    """What is published at QoS 1 while the body runs arrives at each of ``subscribers``, once.

    Args:
        row: The attack, in a word or two.
        publisher: A ``Publisher`` that runs.
        processes: Agents, gateways and collectors that are watched, see ``tests.real.turns``.
    """
    first, began_s = publisher.sent, time.monotonic()
    downs = links_down(processes)
    yield
    await until(lambda: publisher.sent >= first + ENOUGH, f"{ENOUGH} are published")
    publisher.pause()
    wanted = set(range(first, publisher.sent))
    with contextlib.suppress(LinkError):  # what is lost is counted, too
        await until(lambda: all(wanted <= s.came.keys() for s in subscribers), "all arrive")
    publisher.resume()
    lost = sum(len(wanted - subscriber.came.keys()) for subscriber in subscribers)
    delays_s = sorted(
        at_s - publisher.sent_at_s[number]
        for subscriber in subscribers
        for number, at_s in zip(subscriber.order, subscriber.at_s, strict=True)
        if number in wanted
    )
    twice = len(delays_s) + lost - len(wanted) * len(subscribers)
    turn = turns.longest_turn(os.environ[turns.FOLDER], *processes, since_s=began_s)
    downs = links_down(processes) - downs
    tell(
        row=row,
        seconds=round(time.monotonic() - began_s, 1),
        sent=len(wanted),
        lost=lost,
        twice=twice,
        p50_ms=round(1_000 * delays_s[len(delays_s) // 2], 1),
        p99_ms=round(1_000 * delays_s[math.ceil(0.99 * len(delays_s)) - 1], 1),
        slowest_ms=round(1_000 * delays_s[-1], 1),
        links_down=downs,
        turn_ms=round(turn.ms, 1),
        where=turn.where,
    )
    assert not lost
    assert not twice
    assert turn.ms < TURN_MS, turn


def links_down(processes):
    """How many links among ``processes`` ended, as they tell; who attacks may lose its own."""
    agents = [each for each in processes if isinstance(each, AgentProcess)]
    ids = {agent.config.id for agent in agents}
    downs = [line for agent in agents for line in named(agent, "link.down")]
    return sum(line["neighbour"] in ids for line in downs)


def tell(**figures):
    """Add ``figures`` to the table, where one is made; ``bars`` among them are its own ones."""
    if path := os.environ.get(FIGURES):
        test = os.environ["PYTEST_CURRENT_TEST"].rpartition("::")[2].partition(" ")[0]
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"test": test} | figures) + "\n")
