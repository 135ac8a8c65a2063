"""The steerer: connections to all brokers, one decision at a time, plans that are leases.

``planner.steering`` decides what moves, in a thread of its own: the loop keeps renewing plans while
a solver runs.
"""

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import structlog
from mqtt5 import PublishPacket, QoS

from federator.collector.sources import Source, Sources
from federator.config.all_brokers.steerer import SteererSettings, SteeringSettings
from federator.errors import DecodeError
from federator.planner.flow.watch import Watch
from federator.planner.steering.decision import FRESH_MS, Decider
from federator.planner.steering.moves import Decision, Manner
from federator.planner.steering.network import Ends
from federator.planner.steering.placing import Placing
from federator.protocol.messages import topics
from federator.protocol.messages.json_codec import MESSAGE_BYTES_MAX, decode, encode
from federator.protocol.messages.steering import (
    LOAD_EVERY_MS,
    STEERING_VERSION,
    TREES_MAX,
    Load,
    Plan,
    Tree,
    passes,
)
from federator.protocol.trust.key_files import holder_of
from federator.protocol.trust.words import Wanted, at
from federator.protocol.types import BrokerId, Millis
from federator.runtime.mqtt.wire import packet_id_at
from federator.runtime.process.clocks import both_clocks, monotonic_ms, wall_clock_ms
from federator.runtime.process.notices import Complaints
from federator.runtime.trust.words import FollowedWords
from federator.steerer.cores import Cores
from federator.steerer.edges import Edges
from federator.steerer.instance_writer import InstanceWriter
from federator.steerer.lease import NEVER_FIRST, Lease, trees_of
from federator.steerer.logged import Logged

TICK_S: Final = 0.5
NAME_BYTES: Final = 8
SEND_QUEUE_BYTES_MAX: Final = 16_777_216
"""A plan of ``TREES_MAX`` trees has some megabytes."""

LOADS_MAX: Final = 8_192
"""Loads that wait for the next decision; further ones are dropped."""

LISTEN_MS: Final = Millis(6_000)
"""Between the first readable broker and the first decision: we receive plans of an earlier steerer,
and agents' loads."""

MEASURED_MS: Final = Millis(10_000)
"""How long after a decision its effect is measured and logged."""

PLAN_BYTES_MAX: Final = MESSAGE_BYTES_MAX - 4_096
"""Of a plan without its signature."""

LAST_MS: Final = 1_000
"""Validity of the last plan, where a plan cannot be withdrawn."""

DECISIONS_KEPT: Final = 32
SILENT_MS: Final = Millis(10_000)
REFUSED: Final = 0x80
"""Reason codes from here on are refusals."""

_log = structlog.get_logger()


class Steerer:
    """Steers, or waits until the current steerer has ended.

    Args:
        dry: Publish no trees: decide, and report what would move.
        on_decision: Called with every decision.
        instance_file: Where to write the measured instance, once a minute and at the end.

    Attributes:
        counters: Counters since the start; ``app`` describes them.
        steers: Whether our plans are at the brokers.
        holder: The steerer that is in charge instead of us.
    """

    def __init__(
        self,
        settings: SteererSettings,
        tasks: asyncio.TaskGroup,
        *,
        dry: bool = False,
        on_decision: Callable[[Decision, Placing], None] = lambda decision, placing: None,
        instance_file: Path | None = None,
    ) -> None:
        self.settings, self.dry = settings, dry
        manner = _manner(settings.steering)
        self.decider = Decider(manner)
        self._writer = InstanceWriter(instance_file, self.decider) if instance_file else None
        self.cores = Cores(manner, wanted=settings.steering.cores)
        self.edges = Edges(settings.keep)
        self.words = _words(settings)
        self._load = topics.load_topic(settings.federation)
        self._plan = topics.plan_topic(settings.federation)
        self.connections = Sources(
            self,
            settings,
            self.words,
            tasks,
            kind="steerer",
            daemon="steer",
            extra_topics=(self._load, self._plan),
            send_queue_bytes_max=SEND_QUEUE_BYTES_MAX,
        )
        self.lease = _lease(settings, dry=dry)
        self.counters = dict.fromkeys(
            ("loads", "loads_dropped", "plans", "plans_refused", "decisions", "moves"), 0
        )
        self.loads: dict[BrokerId, tuple[Load, Millis]] = {}  # the newest of each
        self.trees: tuple[Tree, ...] = ()
        self.decisions: deque[Logged] = deque(maxlen=DECISIONS_KEPT)
        self.last: Decision | None = None
        self.decision_ms = 0
        self.steers = False
        self.holder: str | None = None
        self._valid_ms = settings.steering.valid_ms
        self._number = 0
        self._readable_since: dict[BrokerId, Millis] = {}
        self._renew_ms = self._decide_ms = Millis(0)
        self._first_ms: Millis | None = None  # when the first broker could be read
        self._new_loads: deque[tuple[Load, Millis]] = deque()
        self._deciding = False
        self._logged: set[str] = set()  # what is logged only once
        self._leaving = False
        self._unanswered = 0
        self._answered = asyncio.Event()  # whether all that we published is acknowledged
        self._answered.set()
        self._on_decision = on_decision
        self._tasks = tasks
        self._solver = ThreadPoolExecutor(1, "solver")
        self._complain = Complaints().complain

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect, and run until cancelled."""
        self.connections.start()
        self._tasks.create_task(self._tick(), name="what is due")
        self._tasks.create_task(self.words.run(), name="keys")

    async def leave(self, *, patience_s: float, keep_ms: int = 0) -> None:
        """Withdraw our plans; or, with ``keep_ms``, leave them valid for so long without us."""
        self._leaving = True
        if self.steers:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._end_plans(keep_ms)
        if self._writer is not None:
            loop = asyncio.get_running_loop()
            write = loop.run_in_executor(self._solver, self._writer.write)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(write, patience_s)
        self._solver.shutdown(wait=False, cancel_futures=True)

    async def _end_plans(self, keep_ms: int) -> None:
        if keep_ms:
            self._valid_ms = keep_ms
            self.publish_plans()
            await self._answered.wait()
            return
        # agents with keys ignore an empty payload, so our last plan expires soon
        if self.words.signs:
            self.trees, self._valid_ms = (), LAST_MS
            self.cores.end()
            self.edges.end()
            self.publish_plans()
            await self._answered.wait()
            await asyncio.sleep(LAST_MS / 1_000)
        for broker, source in self._readable():
            self._publish(source, broker, clear=True)
        await self._answered.wait()

    async def _tick(self) -> None:
        while not self._leaving:
            self._do_what_is_due()
            await asyncio.sleep(TICK_S)

    def _do_what_is_due(self) -> None:
        now_ms = monotonic_ms()
        if self._first_ms is None or now_ms - self._first_ms < TICK_S * 1_000:
            return  # wait for retained plans of others
        self.holder = self.lease.holder(now_ms=now_ms)
        if self.steers and self.holder is not None:
            self.steers = False
            _log.warning("steer.waits", steerer=self.holder)
        elif not self.steers and self.holder is None:
            self.steers, self._renew_ms = True, now_ms
            former = self.lease.former()
            inherited = trees_of(former)
            self.decider.adopt(inherited, now_ms=now_ms)
            self.cores.adopt(former, now_ms=now_ms, dry=self.dry)
            self.edges.adopt(former)
            self.trees = () if self.dry else self.decider.trees
            _log.info("steer.steers", steerer=self.lease.name, inherited=len(inherited))
        elif self.holder is not None and "waits" not in self._logged:
            self._logged.add("waits")
            _log.info("steer.waits", steerer=self.holder)
        if self.steers and now_ms >= self._renew_ms:
            self.publish_plans()
        self._log_measured(now_ms)
        loads = self.loads.items()
        self.loads = {broker: load for broker, load in loads if now_ms - load[1] <= FRESH_MS}
        self._log_silent(now_ms)
        listened = now_ms - self._first_ms >= LISTEN_MS
        if listened and (self.steers or self.dry) and not self._deciding:
            self._decide_soon(now_ms)

    # -- events of sources -----------------------------------------------------------------------

    def on_readable(self, source: Source) -> None:
        """Note that a plan can be published at a broker."""
        assert source.broker is not None
        now_ms = monotonic_ms()
        self._first_ms = now_ms if self._first_ms is None else self._first_ms
        self._readable_since[source.broker] = now_ms
        if self.steers:
            self._publish(source, source.broker)

    def on_gone(self, source: Source) -> None:
        """Forget the broker; its loads expire by themselves."""
        assert source.broker is not None
        self._readable_since.pop(source.broker, None)

    def on_word(self, source: Source, packet: PublishPacket) -> None:
        """Handle a load or a plan."""
        broker, payload = source.broker, bytes(packet.payload)
        if packet.topic == self._plan:
            self._on_plan(broker, payload)
        elif packet.topic == self._load and broker is not None:
            self._on_load(broker, payload)

    def _on_load(self, broker: BrokerId, payload: bytes) -> None:
        load = decode(Load, payload)
        if load.version != STEERING_VERSION or load.federation != self.settings.federation:
            raise DecodeError(f"Load: version {load.version} of {load.federation!r}")
        if load.broker != broker:
            raise DecodeError(f"Load: of broker {load.broker}, heard at {broker}")
        if not self.words.is_agents(broker, self._load, payload):
            return
        self.counters["loads"] += 1
        now_ms = monotonic_ms()
        self.loads[broker] = load, now_ms
        if len(self._new_loads) < LOADS_MAX:
            self._new_loads.append((load, now_ms))
        else:
            self.counters["loads_dropped"] += 1

    def _on_plan(self, broker: BrokerId | None, payload: bytes) -> None:
        """Handle a plan retained at ``broker``; its guide may arrive later."""
        if not payload:
            if broker is not None:
                self.lease.on_cleared(broker)
            return
        plan = decode(Plan, payload)
        if plan.federation != self.settings.federation or self.lease.is_ours(plan):
            return
        if broker is not None and plan.broker != broker:
            raise DecodeError(f"Plan: for broker {plan.broker}, heard at {broker}")
        expected = Wanted("steerer", plan.steerer, to=at(plan.broker), stays=True)
        if self.words.believes(self._plan, payload, expected):
            self.lease.on_plan(plan, both_clocks())

    # -- plans -----------------------------------------------------------------------------------

    def _readable(self) -> list[tuple[BrokerId, Source]]:
        sources = self.connections.by_url.values()
        pairs = [(source.broker, source) for source in sources if source.broker is not None]
        return [(broker, source) for broker, source in pairs if source.link.connected]

    def publish_plans(self) -> None:
        """Publish each broker's plan, which renews it."""
        self._renew_ms = Millis(monotonic_ms() + self._valid_ms // 3)
        self._number += 1
        for broker, source in self._readable():
            self._publish(source, broker)

    def _publish(self, source: Source, broker: BrokerId, *, clear: bool = False) -> None:
        payload = b""
        if not clear:
            trees = tuple(tree for tree in self.trees if passes(tree, broker))[:TREES_MAX]
            while len(body := encode(self._plan_for(broker, trees))) > PLAN_BYTES_MAX:
                trees = trees[: len(trees) // 2]  # agents without the tree use the default route
            payload = self.words.sign(self._plan, body, to=at(broker))
        plan = PublishPacket(self._plan, payload, qos=QoS.AT_LEAST_ONCE, retain=True, packet_id=1)
        packet = bytearray(plan.write())
        answered = partial(self._on_answer, source.url)
        if source.link.publish_packet(packet, packet_id_at(packet), 1, answered):
            self.counters["plans"] += 1
            self._unanswered += 1
            self._answered.clear()

    def _plan_for(self, broker: BrokerId, trees: tuple[Tree, ...]) -> Plan:
        keep, collects = ("", ()) if self.dry else self.edges.plan_of(broker)
        return Plan(
            STEERING_VERSION,
            self.settings.federation,
            broker,
            steerer=self.lease.name,
            since_ms=self.lease.since_ms,
            number=self._number,
            made_ms=wall_clock_ms(),
            valid_ms=self._valid_ms,
            trees=trees,
            priority=self.cores.priorities.get(broker),
            meshes=self.cores.asked,
            keep=keep,
            collects=collects,
        )

    def _on_answer(self, url: str, reason_code: int) -> None:
        self._unanswered -= 1
        if not self._unanswered:
            self._answered.set()
        if reason_code >= REFUSED:
            self.counters["plans_refused"] += 1
            self._complain("steer.plan_refused", url=url, reason_code=reason_code)

    # -- decisions -------------------------------------------------------------------------------

    def _decide_soon(self, now_ms: Millis) -> None:
        if now_ms < self._decide_ms or not self._new_loads:
            return
        self._decide_ms = Millis(now_ms + LOAD_EVERY_MS)
        loads = list(self._new_loads)
        self._new_loads.clear()
        self._deciding = True
        self._tasks.create_task(self._decide(loads), name="decision")

    async def _decide(self, timed_loads: list[tuple[Load, Millis]]) -> None:
        began_ms = monotonic_ms()
        loop = asyncio.get_running_loop()
        try:
            decision, placing = await loop.run_in_executor(
                self._solver, self._decided, timed_loads, trees_of(self.lease.followed()), began_ms
            )
        finally:
            self._deciding = False
        self.decision_ms = monotonic_ms() - began_ms
        self.counters["decisions"] += 1
        self.last = decision
        self._log_capacities()
        obeyed = not (self.dry or not self.steers or self._leaving)
        number, now_ms = self._number + 1, monotonic_ms()
        news = self.cores.follow(placing, obeyed=obeyed, number=number, now_ms=now_ms)
        loads = [load for load, _ in self.loads.values()]
        news = self.edges.follow(loads, now_ms=now_ms) or news
        if not obeyed:
            self.decider.take_back(decision)
        elif decision.moves:
            self._follow_decision(decision)
        else:
            self.trees = decision.trees  # a flow may have ended
        if news and self.steers and self._number < number and not self._leaving:
            self.publish_plans()
        self._on_decision(decision, placing)

    def _decided(
        self, loads: list[tuple[Load, Millis]], followed: list[Tree], now_ms: Millis
    ) -> tuple[Decision, Placing]:
        """Decide, in a thread: nothing else uses the decider meanwhile."""
        for load, came_ms in loads:
            self.decider.on_load(load, now_ms=came_ms)
        if not self.steers:
            self.decider.follow(followed, now_ms=now_ms)
        watch = Watch(
            seconds=lambda: monotonic_ms() / 1_000,
            time_limit_s=self.settings.steering.solve_ms / 1_000,
            interrupted=lambda: self._leaving,
            started_s=now_ms / 1_000,
        )
        decision = self.decider.decide(now_ms=now_ms, watch=watch)
        placing = self.cores.decide(loads, self.lease.name, now_ms, watch)
        if self._writer is not None:
            self._writer.write_if_due()
        self.decider.on_decided(now_ms=monotonic_ms())
        return decision, placing

    def _follow_decision(self, decision: Decision) -> None:
        self.trees = decision.trees
        self.counters["moves"] += len(decision.moves)
        self.publish_plans()
        now_ms = monotonic_ms()
        due_ms = Millis(now_ms + MEASURED_MS)
        logged = Logged(self._number, wall_clock_ms(), decision, due_ms)
        self.decisions.append(logged)
        logged.tell()

    # -- reports ---------------------------------------------------------------------------------

    def measured(self) -> dict[Ends, float]:
        """Load over capacity of each link, as agents reported last."""
        return {
            (load.broker, link.neighbour): link.rate / link.capacity
            for load, _ in self.loads.values()
            for link in load.links
            if link.capacity
        }

    def _log_measured(self, now_ms: Millis) -> None:
        for logged in self.decisions:
            if logged.measured is None and now_ms >= logged.due_ms:
                logged.tell_measured(self.measured())

    def _log_silent(self, now_ms: Millis) -> None:
        """Log brokers that hold a plan of ours but send no load."""
        if not self.steers:
            return
        for broker, since_ms in self._readable_since.items():
            if broker not in self.loads and now_ms - since_ms > SILENT_MS + LISTEN_MS:
                self._complain("steer.no_load", broker=broker)

    def _log_capacities(self) -> None:
        if "capacities" in self._logged:
            return
        links = [link for load, _ in self.loads.values() for link in load.links]
        unknown = sum(link.capacity is None for link in links)
        if not unknown:
            return
        self._logged.add("capacities")
        if unknown == len(links):
            _log.warning("steer.no_capacity", links=unknown)
        else:
            _log.info("steer.unbounded", links=unknown)


def _manner(steering: SteeringSettings) -> Manner:
    return Manner(
        threshold=steering.threshold_percent / 100,
        margin=steering.margin_percent / 100,
        hold_ms=Millis(steering.hold_ms),
        candidates_max=steering.candidates_max,
    )


def _words(settings: SteererSettings) -> FollowedWords:
    return FollowedWords(
        settings.federation,
        settings.keys,
        own_file=settings.keys.steerer_file,
        read_own=settings.keys.own_keys,
        required=["agent", "steerer"],
    )


def _lease(settings: SteererSettings, *, dry: bool) -> Lease:
    own = settings.keys.own_keys()
    # Agents with keys require the name in our certificate.
    name = secrets.token_hex(NAME_BYTES) if own is None else holder_of(own).name
    # Numbers of one name may only grow, so a dry run with keys takes its turn.
    last = dry and own is None
    return Lease(name, since_ms=NEVER_FIRST if last else wall_clock_ms())
