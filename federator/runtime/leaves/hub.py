"""A hub: the agent of a broker that serves leaves, and one more agent (a port) for each leaf.

The broker is the switch between them. Like a client, each agent publishes on its broker what comes
from its side, and subscribes to what its side wants; so the others receive what one publishes.
Custody between clients of one broker thus extends to the mesh and the leaves, and nothing returns
to its source, as each agent ignores its own publications. ``protocol.leaves.switch`` decides what
each of them asks its side for. We pass that on in turns of some milliseconds: one side may change
100,000 filters, which concern every leaf.

Source: docs/hubs.md.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from federator.config.settings import Settings
from federator.protocol.filters import CoverChange
from federator.protocol.leaves.arrivals import Arrivals
from federator.protocol.leaves.switch import CLIENTS, Advertising, Changes, Side, Source, Switch
from federator.protocol.leaves.waiting import FILTERS_PER_TURN, WaitingChanges
from federator.protocol.types import BrokerId, Millis
from federator.runtime.leaves.role import BrokerAgent, Role
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.process.clocks import DeadlineTimer, monotonic_ms
from federator.runtime.storage.filter_file import FilterFile

ASKED: Final = "asked"
"""The file that lists the filters one side was asked for."""

TURN_S: Final = 0.01
"""How long one turn of the loop decides and asks; the last step may take some milliseconds more."""

LEAF_ANSWERS_MAX: Final = 1_024
"""Topics and keys per leaf with a remembered answer whether another side wants them."""

_log = structlog.get_logger()


class Hub(Role):
    """The ports of the leaves, beside the agent of their broker; the role of that agent.

    All agents join, that one first; then start the hub, and after it that agent.
    """

    def __init__(self, settings: Settings, folders: Mapping[BrokerId, Path]) -> None:
        self._self_id = settings.broker_id
        self._agents: dict[Side, BrokerAgent] = {}
        self.ports: dict[BrokerId, BrokerAgent] = {}
        self.switch = Switch(
            folders,
            filters_max=settings.hub.filters_max,
            linger_ms=settings.custody.keep_s * 1_000,
        )
        self.wanted = dict.fromkeys(folders, 0)  # how many filters
        places: list[tuple[Side, Path]] = [(None, settings.state_dir), *folders.items()]
        self._asked_before = {
            side: FilterFile(folder, ASKED, filters_max=settings.hub.announced_max)
            for side, folder in places
        }
        self.asked_mesh: set[str] = set()  # what the mesh is asked for, by names on our broker
        self.arrivals: dict[Side, Arrivals] = {}
        self._waiting: WaitingChanges[Source] = WaitingChanges()
        self._steps: Iterator[None] = iter(())  # the work in progress
        self._is_working = False
        self._is_due = False  # something has lingered long enough
        self._reconsiders = False  # covers are to be computed again
        self._looking = False
        self._timer = DeadlineTimer(self._on_time)

    def port(self, leaf: BrokerId) -> Role:
        """The role with which the agent for a leaf is made."""
        return PortRole(self, leaf)

    def join(self, side: Side, agent: BrokerAgent) -> None:
        """Add the agent of one side."""
        self._agents[side] = agent
        if side is not None:
            self.ports[side] = agent
        self.arrivals[side] = self._of_mesh() if side is None else self._of_leaf(side)

    def start(self) -> None:
        """From now on pass on to each agent what the others want; connect all ports."""
        for port in self.ports.values():
            port.start()
        asked = {side: file.load() for side, file in self._asked_before.items()}
        self._steps = self._apply(self.switch.recall(asked, Millis(monotonic_ms())))
        self._work_soon()

    async def leave(self) -> None:
        """Send byes to the leaves, as ``Agent.leave``."""
        await asyncio.gather(*(port.leave() for port in self.ports.values()))

    def follow(self, settings: Settings) -> None:
        """Apply the rules that ``settings`` have for leaves, in this turn of the loop."""
        for leaf in settings.leaves:
            port = self.ports[BrokerId(leaf.id)]
            if port.settings.link_rules() != (new := settings.for_leaf(leaf)).link_rules():
                port.follow_link_rules(new)

    def served_by(self, leaf: BrokerId) -> BrokerId:
        """The hub that serves a leaf: as far as we know, us."""
        served = self.ports[leaf].node.serving.of(leaf)
        return self._self_id if served is None else served.hub

    def count_served(self) -> int:
        up = (leaf for leaf, port in self.ports.items() if port.node.links.up)
        return sum(self.served_by(leaf) == self._self_id for leaf in up)

    # The role of our broker's own agent

    def on_clients(
        self,
        added: frozenset[str],
        removed: frozenset[str],
        ask: Callable[[Iterable[str], Iterable[str]], None],
    ) -> None:
        """Clients of our broker want other filters: the hub decides what each side is asked for."""
        self._want(CLIENTS, added, removed)

    def asked(self, wanted: frozenset[str]) -> frozenset[str]:
        return frozenset(self.asked_mesh)

    def own_links(self) -> list[MqttLink]:
        """The ports' connections to our broker."""
        return [link for port in self.ports.values() for link in port.own_links()]

    def call_roll(self) -> None:
        for port in self.ports.values():
            port.call_roll()

    def is_complete(self) -> bool:
        """Whether every agent here now receives what another one publishes on our broker."""
        return all(agent.subscribed for agent in self._agents.values())

    def on_looked(self) -> None:
        """An agent here checked its presence: the others may have waited for it."""
        if not self._looking and self.is_complete():
            self._looking = True
            for agent in self._agents.values():
                agent.look()
            self._looking = False

    def on_roaming(self) -> None:
        """A leaf has another hub besides: it must recognise there what it got here."""
        for agent in self._agents.values():
            agent.stamp()

    def note_arrival(self, keys: bytes, run: bytes, publications: int) -> None:
        self.arrivals[None].note(keys, run, publications)

    def on_wanted(self, added: Sequence[str], removed: Sequence[str]) -> None:
        """The mesh wants ``added`` from us from now on, and no longer ``removed``."""
        self._want(None, added, removed)

    # Arrivals

    def _of_mesh(self) -> Arrivals:
        """Count what the mesh sends: our clients or a leaf must want it."""
        agent, wanted_by = self._agents[None], self.switch.mesh.count
        inward = agent.policy.renames.filter_inward
        return Arrivals(
            filters_with=agent.forwarder.filters_with,
            wants_filter=lambda filter_: all(map(wanted_by, inward(filter_) or (filter_,))),
            wants_topic=lambda topic: any(self.switch.wishes(topic)),
            on_unwanted=self._saw,
        )

    def _of_leaf(self, leaf: BrokerId) -> Arrivals:
        """Count what a leaf sends: our clients, the mesh or another leaf must want it."""
        mesh, wants = self._agents[None].forwarder, self.ports[leaf].forwarder.wants
        outward = self._agents[None].policy.renames.outward

        def in_mesh(topic: str) -> bool:
            name = outward(topic)
            return name is not None and mesh.route_topic(name) is not None

        return Arrivals(
            filters_with=self.ports[leaf].forwarder.filters_with,
            wants_filter=lambda filter_: self.switch.mesh.count(filter_) > wants(filter_),
            wants_topic=lambda topic: (
                any(sides > wants(side) for side, sides in self.switch.wishes(topic))
                or in_mesh(topic)
            ),
            on_unwanted=self._saw,
            answers_max=LEAF_ANSWERS_MAX,
        )

    # Interest changes

    def on_leaf_wants(self, leaf: BrokerId, added: Sequence[str], removed: Sequence[str]) -> None:
        """A leaf wants ``added`` from us from now on, and no longer ``removed``."""
        self.wanted[leaf] += len(_publications(added)) - len(_publications(removed))
        self._want(leaf, added, removed)

    def bring_mesh_again(self, run: bytes) -> None:
        """A leaf returns data that the mesh sent it through its other hub: others may lack it."""
        self._agents[None].bring_again(run)

    def _want(self, side: Source, added: Iterable[str], removed: Iterable[str]) -> None:
        """Queue a change; the agent that reports it first finishes handling its message."""
        self._waiting.add(side, _publications(added), _publications(removed))
        self._work_soon()

    def _saw(self, topic: str) -> None:
        if self.switch.saw(topic):
            self._reconsiders = True
            self._work_soon()

    def _on_time(self) -> None:
        self._is_due = True
        self._work_soon()

    def _work_soon(self) -> None:
        if not self._is_working:
            self._is_working = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        """Decide and ask for a moment, and go on in the next turn."""
        end_s = time.perf_counter() + TURN_S
        self._is_working = False
        while True:
            for _ in self._steps:
                if time.perf_counter() >= end_s:
                    self._work_soon()
                    return
            if self._is_due:
                self._is_due = False
                changes = self.switch.on_deadline(Millis(monotonic_ms()))
            elif self._reconsiders:
                self._reconsiders = False
                changes = self.switch.reconsider(Millis(monotonic_ms()))
            elif self._waiting:
                changes = self.switch.change(*self._waiting.take(), Millis(monotonic_ms()))
            else:
                self._timer.set(self.switch.next_deadline_ms())
                return
            self._steps = self._carry_out(changes)
            for arrivals in self.arrivals.values():
                arrivals.forget()

    def _carry_out(self, advertising: Advertising) -> Iterator[None]:
        for changes in advertising:
            if changes is not None:
                yield from self._apply(changes)
            yield

    def _apply(self, changes: Changes) -> Iterator[None]:
        for side, change in changes.items():
            for part in _parts(change):
                self._note(side, part)
                if side is None:
                    self.asked_mesh.update(part.subscribe)
                    self.asked_mesh.difference_update(part.unsubscribe)
                self._agents[side].ask(part.subscribe, part.unsubscribe)
                yield

    def _note(self, side: Side, change: CoverChange) -> None:
        """Write down the filters asked for, for the next start."""
        try:
            self._asked_before[side].alter(
                dict.fromkeys(change.unsubscribe) | dict.fromkeys(change.subscribe, 0)
            )
        except OSError as error:
            _log.warning("hub.list_failed", reason=error.strerror or str(error))


class PortRole(Role):
    """The role of the agent that a hub has for one leaf: that has no clients, and no log."""

    def __init__(self, hub: Hub, leaf: BrokerId) -> None:
        self._hub, self._leaf = hub, leaf
        self.again = hub.bring_mesh_again

    def note_arrival(self, keys: bytes, run: bytes, publications: int) -> None:
        self._hub.arrivals[self._leaf].note(keys, run, publications)

    def on_wanted(self, added: Sequence[str], removed: Sequence[str]) -> None:
        self._hub.on_leaf_wants(self._leaf, added, removed)

    def is_complete(self) -> bool:
        return self._hub.is_complete()

    def on_looked(self) -> None:
        self._hub.on_looked()

    def on_roaming(self) -> None:
        self._hub.on_roaming()

    def served_leaves(self) -> int:
        """How many leaves the hub serves, for the page that this leaf reads."""
        return self._hub.count_served()


def _publications(filters: Iterable[str]) -> list[str]:
    """The filters of clients' publications; others are between agents."""
    return sorted(filter_ for filter_ in filters if not filter_.startswith("$"))


def _parts(change: CoverChange) -> Iterator[CoverChange]:
    """``change``, a few filters at a time: new ones are asked for before those they contain go."""
    if len(change.subscribe) + len(change.unsubscribe) <= FILTERS_PER_TURN:
        if change:
            yield change
        return
    for at in range(0, len(change.subscribe), FILTERS_PER_TURN):
        yield CoverChange(change.subscribe[at : at + FILTERS_PER_TURN], ())
    for at in range(0, len(change.unsubscribe), FILTERS_PER_TURN):
        yield CoverChange((), change.unsubscribe[at : at + FILTERS_PER_TURN])
