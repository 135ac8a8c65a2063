"""The steerer as a process: its HTTP answers, its output, and what ends it.

Source: docs/steering.md.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from os import EX_CONFIG, EX_NOPERM, EX_UNAVAILABLE
from pathlib import Path
from typing import Final

import structlog

from federator.config.all_brokers.steerer import SteererSettings
from federator.errors import ConfigError
from federator.planner.steering.moves import Decision, Move, fullest
from federator.planner.steering.placing import Placing
from federator.protocol.messages.steering import VALID_MS_MAX
from federator.runtime.process import service_manager
from federator.runtime.process.exposition import Family, families, table
from federator.runtime.process.http import AgentView
from federator.runtime.process.reloading import Reloader, Source, reload_requested
from federator.runtime.process.serving import http_page, run_to_end, stop_requested, with_tasks
from federator.steerer.cores import placing_text
from federator.steerer.steerer import Steerer

LEAVE_S: Final = 3.0
"""Time limit for withdrawing plans at the end; what is left expires."""

ONCE_DECISIONS: Final = 14
"""Decisions (two seconds each) after which ``--once`` concludes that nothing moves."""

ONCE_S: Final = 90.0
"""How long ``--once`` may take."""

LISTED_MAX: Final = 1_000
SET_CAPACITY: Final = (
    'capacity = "2 Mbit/s" under [[neighbours]] of the agents\' configuration sets one'
)

_log = structlog.get_logger()
STEERER: Final = table(
    "federator_steerer",
    """
counter .
  loads loads Loads that agents told.
  loads_dropped loads_dropped Loads dropped while a decision took long.
  plans plans_published Plans published, one for each broker and renewal.
  plans_refused plans_refused Plans that a broker refused.
  decisions decisions Decisions, with and without moves.
  core_moves core_moves Brokers that were given another priority as a core.
  moves moves Flows that were given a tree, another one, or the ordinary way.
  malformed words_malformed Guides, loads and plans that are none.
  refused words_refused Guides, loads and plans that no key of ours trusts.
  misled connections_misled Connections with another broker behind them.
  http_refused http_connections_refused HTTP connections that gave way to others.
gauge .
  ready ready 1 when agents tell their loads.
  steers steers 1 when we steer, 0 when somebody else does.
  trees trees Trees in force.
  cores cores_placed Brokers that have a priority as a core from us.
  kept kept_publications_rate Publications per second kept at edges, as told last.
  kept_bits kept_bits_per_second Bits per second of those.
  flows flows Flows known.
  agents agents Agents that told their load of late.
  fullest link_load_ratio Load over capacity of the fullest link, as told last.
  decision_s decision_seconds How long the last decision took.
gauge . url
  up broker_up 1 when the broker can be read.
""",
)

Answer = dict[str, object]


class SteererView(AgentView):
    """Answers for one steerer."""

    def __init__(self, steerer: Steerer) -> None:
        self.http_refused: Callable[[], int] = lambda: 0
        self._steerer = steerer

    def ready(self) -> tuple[bool, str]:
        """Whether loads arrive, and otherwise what to check."""
        steerer = self._steerer
        if (why := steerer.connections.why_none()) is not None:
            return False, why
        if steerer.counters["plans_refused"]:
            return False, "a broker refuses plans: its ACL wants `federator doctor --acl`"
        if not steerer.loads:
            return False, f"no agent tells its load: {why_no_load(steerer)}"
        if steerer.holder is not None:
            return True, f"waits: {steerer.holder} steers"
        return True, "ready"

    def counters(self) -> Mapping[str, int]:
        """Counters since the start."""
        steerer = self._steerer
        return {
            **steerer.counters,
            "core_moves": steerer.cores.moves,
            "malformed": steerer.connections.malformed,
            "refused": sum(steerer.words.refused.values()),
            "misled": steerer.connections.misled,
        }

    def status(self) -> Answer:
        """The whole state."""
        steerer = self._steerer
        ready, reason = self.ready()
        return {
            "federation": steerer.settings.federation,
            "ready": ready,
            "ready_reason": reason,
            "steerer": steerer.lease.name,
            "steers": steerer.steers,
            "waits_for": steerer.holder,
            "dry": steerer.dry,
            "brokers": [
                {
                    "url": source.url,
                    "id": source.broker,
                    "connected": source.link.connected,
                    "tells_load": source.broker in steerer.loads,
                    "error": source.link.last_error,
                }
                for source in islice(steerer.connections.by_url.values(), LISTED_MAX)
            ],
            "unreached": steerer.connections.directory.unreached,
            "links": [
                {"from": a, "to": b, "load": round(share, 3)}
                for (a, b), share in islice(self._fullest_first(), LISTED_MAX)
            ],
            "trees": list(self.routes()),
            "why": steerer.last.why if steerer.last is not None else "",
            "decisions": [
                {
                    "number": logged.number,
                    "at_ms": logged.at_ms,
                    "why": logged.decision.why,
                    "moves": [as_text(move) for move in logged.decision.moves[:LISTED_MAX]],
                    "fullest_before": fullest(logged.decision.before),
                    "fullest_promised": fullest(logged.decision.promised),
                    "fullest_measured": logged.measured,
                }
                for logged in steerer.decisions
            ],
            "cores": steerer.cores.snapshot(),
            "edges": steerer.edges.snapshot(),
            "counters": self.counters(),
        }

    def _fullest_first(self) -> Iterable[tuple[tuple[int, int], float]]:
        return sorted(self._steerer.measured().items(), key=lambda entry: (-entry[1], entry[0]))

    def routes(self) -> Iterable[Answer]:
        """One entry per tree; bounded."""
        return (
            {"origin": tree.origin, "filters": tree.filters, "edges": tree.edges}
            for tree in islice(self._steerer.trees, LISTED_MAX)
        )

    def metrics(self) -> Iterable[Family]:
        """Counters and gauges."""
        steerer = self._steerer
        kept = steerer.edges.kept()
        sources = islice(steerer.connections.by_url.values(), LISTED_MAX)
        return families(
            STEERER,
            {
                **self.counters(),
                "http_refused": self.http_refused(),
                "ready": int(self.ready()[0]),
                "steers": int(steerer.steers),
                "trees": len(steerer.trees),
                "cores": len(steerer.cores.priorities),
                "kept": kept.publications,
                "kept_bits": kept.rate,
                "flows": steerer.decider.flows,
                "agents": len(steerer.loads),
                "fullest": fullest(steerer.measured()),
                "decision_s": steerer.decision_ms / 1_000,
                "up": {source.url: source.link.subscribed for source in sources},
            },
        )


def serve(
    settings: SteererSettings,
    source: Source[SteererSettings],
    *,
    dry: bool = False,
    once: bool = False,
    instance_file: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Steer until SIGTERM or SIGINT; ``source`` is read again at SIGHUP.

    ``say`` gets the output of ``dry`` and ``once``.

    Raises:
        ConfigError: The HTTP port is not available; with ``once``: nothing can be decided.
    """
    run_to_end(_run(settings, source, dry, once, instance_file, say))


async def _run(
    settings: SteererSettings,
    source: Source[SteererSettings],
    dry: bool,
    once: bool,
    instance_file: Path | None,
    say: Callable[[str], None],
) -> None:
    stop = stop_requested(settings.notices())
    reloader = Reloader(settings, source, reload_requested())
    output = _DecisionPrinter(say) if dry or once else None
    outcome: list[ConfigError] = []

    async def be(tasks: asyncio.TaskGroup) -> None:
        def on_decision(decision: Decision, placing: Placing) -> None:
            if output is not None:
                output.on_decision(decision, placing, steerer.edges.text() if dry else [])
                if once and output.enough:
                    stop.set()

        steerer = Steerer(
            settings, tasks, dry=dry, on_decision=on_decision, instance_file=instance_file
        )
        view = SteererView(steerer)
        async with http_page(view, settings.http) as port:
            steerer.start()
            _log.info("steer.started", steerer=steerer.lease.name, http_port=port, dry=dry)
            links = lambda: [connection.link for connection in steerer.connections.by_url.values()]  # noqa: E731
            async with (
                service_manager.told(view.ready, links) as reloading,
                reloader.following(reloading),
            ):
                try:
                    async with asyncio.timeout(ONCE_S if once else None):
                        await stop.wait()
                except TimeoutError:
                    outcome.append(_nothing_came(steerer))
            idle = not (steerer.measured() or steerer.cores.last.meshes or steerer.edges.wanted)
            if once and not outcome and idle and steerer.loads:
                text = f"no link has a capacity, so none can be too full: {SET_CAPACITY}"
                outcome.append(ConfigError(text, exit_code=EX_CONFIG))
            keep_ms = VALID_MS_MAX if once and not dry and not outcome else 0
            await steerer.leave(patience_s=LEAVE_S, keep_ms=keep_ms)

    await with_tasks(be)
    _log.info("steer.stopped")
    if outcome:
        raise outcome[0]


def _nothing_came(steerer: Steerer) -> ConfigError:
    """Why ``--once`` has nothing to decide about, in one line."""
    ready, reason = SteererView(steerer).ready()
    if ready:
        return ConfigError("no decision in time: see --json of /status", exit_code=EX_UNAVAILABLE)
    code = EX_UNAVAILABLE if reason.startswith("no broker") else EX_NOPERM
    return ConfigError(reason, exit_code=code)


def why_no_load(steerer: Steerer) -> str:
    """What to check when agents send no loads."""
    refused = [
        topic
        for source in steerer.connections.by_url.values()
        for topic in source.link.refused_filters
    ]
    if refused:
        return f"the broker's ACL refuses {refused[0]}: see `federator doctor --acl`"
    if not steerer.words.signs and steerer.words.judges:
        return "keys.steerer_file is not named, and they obey no plan without a signature"
    return "see steer.follow and steer.refused there, and keys.steerer_file here"


class _DecisionPrinter:
    """Prints decisions for people: once, not every two seconds."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._print = say
        self._last: tuple[str, ...] = ()
        self._decisions = 0
        self.enough = False

    def on_decision(self, decision: Decision, placing: Placing, edges: list[str]) -> None:
        """Print what would move, or that nothing does, if that is new."""
        self._decisions += 1
        last = self._decisions >= ONCE_DECISIONS
        if not decision.moves and not placing.changed and not last:
            return
        self.enough = True
        cores = placing_text(placing)
        flows = decision_text(decision) if decision.moves or not cores else []
        lines = (*flows, *cores, *edges)
        if lines and lines[:1] != self._last[:1]:
            for line in lines:
                self._print(line)
        self._last = lines


def decision_text(decision: Decision) -> list[str]:
    """Format a decision for people."""
    if not decision.moves:
        return [f"nothing moves: {decision.why}"]
    lines = [decision.why]
    lines += [f"  {as_text(move)}" for move in decision.moves]
    before, promised = fullest(decision.before), fullest(decision.promised)
    lines.append(f"  the fullest link: {before:.0%} before, {promised:.0%} promised")
    lines.append(f"  rates times costs: {decision.cost:.4g}, {decision.cost_promised:.4g}")
    return lines


def as_text(move: Move) -> str:
    """Format a move for people."""
    filters = ", ".join(move.filters[:3]) + (", ..." if len(move.filters) > 3 else "")
    way = "the ordinary way"
    if move.tree is not None:
        way = "by " + ", ".join(f"{a} to {b}" for a, b in move.tree.edges)
    return f"{filters} from {move.origin} ({move.rate / 1e3:.3g} kbit/s): {way}: {move.why}"
