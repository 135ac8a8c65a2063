"""Faults of processes: brokers and agents killed, restarted, paused, and out of disk space.

What a fault may cost depends on whom it hits, so kills are classes by the broker's role.
"""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from federator.protocol.types import BrokerId
from lab.chaos.layout import Layout
from lab.chaos.stage import Act, Draw, Injury, Kind, Stage, soon
from lab.grid.processes.children import Child

BROKER_AWAY_S: Final = (1.0, 5.0)
AGENT_AWAY_S: Final = (1.0, 5.0, 10.0)
PAUSED_S: Final = (3.0, 6.0, 10.0)
"""Shorter and longer than the hello timeout."""

RESTART_S: Final = 1.0

ROLES: Final[dict[str, Callable[[Layout], tuple[BrokerId, ...]]]] = {
    "origin": lambda layout: layout.origins,
    "relay": lambda layout: layout.relays,
    "destination": lambda layout: layout.destinations,
}


def _kill_broker(role: str) -> Draw:
    def draw(stage: Stage, rng: random.Random) -> Injury:
        here = rng.choice(ROLES[role](stage.layout))
        kill = soon(partial(stage.kill_broker, here))
        return _broker_down(stage, f"broker-kill-{role}", here, rng, kill, "kill -9", BROKER_AWAY_S)

    return draw


def _restart_broker(kind: str, *, persistent: bool) -> Draw:
    def draw(stage: Stage, rng: random.Random) -> Injury:
        here = rng.choice(_restartable(stage, persistent=persistent))

        stop = partial(stage.stop_broker, here)
        return _broker_down(stage, kind, here, rng, stop, "SIGTERM", (RESTART_S,))

    return draw


def _restartable(stage: Stage, *, persistent: bool) -> list[BrokerId]:
    return [i for i in stage.grid.grid.ids if (i in stage.persistent) == persistent]


def _broker_down(
    stage: Stage,
    kind: str,
    here: BrokerId,
    rng: random.Random,
    inflict: Act,
    how: str,
    spans_s: tuple[float, ...],
) -> Injury:
    hold_s = stage.span_s(rng, spans_s)

    felt = soon(lambda: not stage.grid.brokers[here].running)
    detail = f"{how}, back after {hold_s:g} s"
    victims, heal = frozenset({f"broker {here}"}), partial(stage.start_broker, here)
    return Injury(kind, victims, detail, hold_s, inflict, heal, felt)


def _kill_agent(role: str) -> Draw:
    def draw(stage: Stage, rng: random.Random) -> Injury:
        here, hold_s = rng.choice(ROLES[role](stage.layout)), stage.span_s(rng, AGENT_AWAY_S)
        inflict = soon(partial(stage.kill_agent, here))
        heal = partial(stage.start_agent, here)
        felt = soon(lambda: not stage.grid.agents[here].running)
        kind, victims = f"agent-kill-{role}", frozenset({f"agent {here}"})
        detail = f"kill -9, back after {hold_s:g} s"
        return Injury(kind, victims, detail, hold_s, inflict, heal, felt)

    return draw


def _draw_agent_pause(stage: Stage, rng: random.Random) -> Injury:
    here = rng.choice(stage.grid.grid.ids)
    agent, hold_s = stage.grid.agents[here], stage.span_s(rng, PAUSED_S)
    return _pause("agent", here, agent, hold_s, lambda: agent.pause(), lambda: agent.resume())


def _draw_broker_pause(stage: Stage, rng: random.Random) -> Injury:
    here = rng.choice(stage.grid.grid.ids)
    broker = stage.grid.brokers[here]

    def pause() -> None:
        stage.ledger.interrupted(here, stage.now_s())
        broker.pause()

    def resume() -> None:
        stage.ledger.goes_on(here, stage.now_s())
        broker.resume()

    return _pause("broker", here, broker, stage.span_s(rng, PAUSED_S), pause, resume)


def _pause(
    what: str,
    here: BrokerId,
    process: Child,
    hold_s: float,
    pause: Callable[[], None],
    resume: Callable[[], None],
) -> Injury:
    victims, detail = frozenset({f"{what} {here}"}), f"SIGSTOP, {hold_s:g} s"
    felt = soon(lambda: _is_stopped(process.pid))
    return Injury(f"{what}-pause", victims, detail, hold_s, soon(pause), soon(resume), felt)


def _is_stopped(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return stat.rpartition(")")[2].split()[0] == "T"


def _draw_disk_full(stage: Stage, rng: random.Random) -> Injury:
    here, hold_s = rng.choice(sorted(stage.disks)), stage.span_s(rng, PAUSED_S)
    disk = stage.disks[here]
    acts = soon(disk.fill), soon(disk.empty), soon(disk.is_full)
    detail = f"no free block, {hold_s:g} s"
    return Injury("disk-full", frozenset({f"agent {here}"}), detail, hold_s, *acts)


def _kill_kinds(what: str, draw: Callable[[str], Draw]) -> list[Kind]:
    def lacks(role: str) -> Callable[[Stage], str]:
        return lambda stage: "" if ROLES[role](stage.layout) else f"no broker is a {role} here"

    return [
        Kind(f"{what}-kill-{role}", f"kill -9 of a {role}'s {what}", draw(role), lacks(role))
        for role in ROLES
    ]


def _restart_kind(name: str, *, persistent: bool) -> Kind:
    return Kind(
        name,
        f"a broker restarted in order, {'with' if persistent else 'without'} persistence",
        _restart_broker(name, persistent=persistent),
        lambda stage: "" if _restartable(stage, persistent=persistent) else "no such broker",
    )


PROCESS_FAULTS: Final = (
    *_kill_kinds("broker", _kill_broker),
    *_kill_kinds("agent", _kill_agent),
    _restart_kind("broker-restart", persistent=False),
    _restart_kind("broker-restart-saved", persistent=True),
    Kind("agent-pause", "SIGSTOP of an agent", _draw_agent_pause),
    Kind("broker-pause", "SIGSTOP of a broker", _draw_broker_pause),
    Kind(
        "disk-full",
        "no room for an agent's state (takes root)",
        _draw_disk_full,
        lambda stage: "" if stage.disks else "mounting a small file system takes root",
    ),
)
