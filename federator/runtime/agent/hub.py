"""A hub: the agent of a broker on which leaves hang, and one more agent beside it for each leaf.

The broker is the switch between them. An agent gives its broker what comes from the federation, and
takes from it what the federation wants, like a client; so what one agent here gives, the others
take. All that custody promises between clients of one broker so holds between the mesh and leaves,
and nothing comes back to where it came from, as no client hears itself. What each of them asks for
is decided in ``protocol.leaves.switch``, and told here, in the turn after.

Source: docs/hubs.md.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import structlog

from federator.config.settings import Settings
from federator.protocol.data.stamps import StampBook
from federator.protocol.filters import CoverChange
from federator.protocol.leaves.switch import Switch, Told
from federator.protocol.types import BrokerId, Millis
from federator.runtime.agent.agent import Agent
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.mqtt.wire import inbound_of
from federator.runtime.process.clocks import DeadlineTimer, monotonic_ms
from federator.runtime.storage.filter_file import FilterFile
from federator.runtime.storage.state_dir import StateDir

ASKED: Final = "asked"
"""The file that lists what one side was asked for."""

ROOM: Final = 4
"""Times ``hub.filters_max``: what is told, what lingers, and some to spare."""

LEAVES_PER_TURN: Final = 16

_log = structlog.get_logger()


@contextlib.contextmanager
def port_folders(settings: Settings) -> Iterator[dict[BrokerId, StateDir]]:
    """The state folders of what leaves hang at, one each, while we use them."""
    with contextlib.ExitStack() as stack:
        yield {
            BrokerId(leaf.id): stack.enter_context(StateDir(settings.for_leaf(leaf).state_dir))
            for leaf in settings.leaves
        }


class Hub:
    """The agents at which leaves hang, beside the ``agent`` of their broker.

    Make and start it before that one is started.
    """

    def __init__(
        self,
        agent: Agent,
        folders: dict[BrokerId, StateDir],
        tasks: asyncio.TaskGroup,
        book: StampBook,
    ) -> None:
        settings = agent.settings
        self._agent = agent
        self.ports = {
            id: Agent(settings.for_leaf(leaf), folder, tasks, book)
            for (id, folder), leaf in zip(folders.items(), settings.leaves, strict=True)
        }
        self.switch = Switch(
            self.ports,
            filters_max=settings.hub.filters_max,
            linger_ms=settings.custody.keep_s * 1_000,
        )
        self._wanted = dict.fromkeys(self.ports, 0)  # how many filters
        places = {None: settings.state_dir} | {leaf: f.path for leaf, f in folders.items()}
        self._asked_before = {
            side: FilterFile(folder, ASKED, filters_max=ROOM * settings.hub.filters_max)
            for side, folder in places.items()
        }
        self._asking: deque[tuple[BrokerId, CoverChange]] = deque()  # not asked yet
        self._waiting: deque[Callable[[Millis], Told]] = deque()
        self._timer = DeadlineTimer(self._on_time)

    def start(self) -> None:
        """Tell each of them from now on what the others want, and connect all ports."""
        services = self._agent.services
        services.hub = self
        services.presence.complete = lambda: all(
            port.control.data_link.subscribed for port in self.ports.values()
        )
        self._agent.data.forwarder.on_wanted = self._on_mesh
        for leaf, port in self.ports.items():
            port.services.presence.looked = services.presence.update
            port.services.serving.on_roaming = self._on_roaming
            port.data.stamps.again = self._tell_mesh_again
            port.data.forwarder.on_wanted = self._listener(leaf)
            port.start()
        asyncio.get_running_loop().call_soon(self._recall)

    async def leave(self) -> None:
        """Tell the leaves that we go, as ``Agent.leave``."""
        await asyncio.gather(*(port.leave() for port in self.ports.values()))

    # What the agent asks its hub

    @property
    def asked(self) -> frozenset[str]:
        """What the mesh is asked for, by the names of our broker."""
        return self.switch.mesh.filters

    def own_links(self) -> list[MqttLink]:
        """The connections to our broker that leaves take."""
        return [
            link
            for port in self.ports.values()
            for link in (port.control.link, port.control.data_link, *port.data.retained_links)
        ]

    def on_clients(self, added: frozenset[str], removed: frozenset[str]) -> None:
        """Clients of our broker want ``added``, and no more ``removed``."""
        self._tell(self.switch.on_clients(sorted(added), sorted(removed), Millis(monotonic_ms())))

    def call_roll(self) -> None:
        """Ask leaves to subscribe again what they hear at our broker."""
        for port in self.ports.values():
            port.control.outboxes.call_roll()

    # What others want

    def _on_mesh(self, added: Sequence[str], removed: Sequence[str]) -> None:
        change = _publications(added, removed)
        self._later(lambda now_ms: self.switch.on_mesh(change, now_ms))

    def _on_roaming(self) -> None:
        """A leaf has another hub besides: what it gets from here must be known again there."""
        for agent in (self._agent, *self.ports.values()):
            agent.data.stamps.stamping = True

    def _tell_mesh_again(self, run: bytes) -> None:
        """A leaf says what the mesh brought here already by its other hub: others may lack it."""
        data = self._agent.data
        data.enter(memoryview(run), inbound_of(run))
        data.path.flush()

    def _listener(self, leaf: BrokerId) -> Callable[[Sequence[str], Sequence[str]], None]:
        def on_leaf(added: Sequence[str], removed: Sequence[str]) -> None:
            change = _publications(added, removed)
            self._wanted[leaf] += len(change.subscribe) - len(change.unsubscribe)
            self._later(lambda now_ms: self.switch.on_leaf(leaf, change, now_ms))

        return on_leaf

    def _later(self, decide: Callable[[Millis], Told]) -> None:
        """Tell it when the agent that says so has done all that follows from what it heard."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._tell_waiting)
        self._waiting.append(decide)

    def _tell_waiting(self) -> None:
        """One at a turn: what comes of it is told to every leaf."""
        decide = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._tell_waiting)
        self._tell(decide(Millis(monotonic_ms())))

    def _on_time(self) -> None:
        self._tell(self.switch.on_deadline(Millis(monotonic_ms())))

    def _recall(self) -> None:
        """Ask again for what was asked for before a restart."""
        leaves = {leaf: f.load() for leaf, f in self._asked_before.items() if leaf is not None}
        mesh = self._asked_before[None].load()
        self._tell(self.switch.recall(mesh, leaves, Millis(monotonic_ms())))

    def _tell(self, told: Told) -> None:
        if told.mesh:
            self._note(None, told.mesh)
            self._agent.services.ask(told.mesh.subscribe, told.mesh.unsubscribe)
        if told.leaves and not self._asking:
            asyncio.get_running_loop().call_soon(self._ask_leaves)
        self._asking.extend(told.leaves.items())
        self._timer.set(self.switch.next_deadline_ms())

    def _ask_leaves(self) -> None:
        """A few at a turn: there may be hundreds."""
        for _ in range(min(LEAVES_PER_TURN, len(self._asking))):
            leaf, change = self._asking.popleft()
            self._note(leaf, change)
            self.ports[leaf].services.ask(change.subscribe, change.unsubscribe)
        if self._asking:
            asyncio.get_running_loop().call_soon(self._ask_leaves)

    def _note(self, side: BrokerId | None, change: CoverChange) -> None:
        """Write down what is asked for, for the next life."""
        try:
            self._asked_before[side].alter(
                dict.fromkeys(change.unsubscribe) | dict.fromkeys(change.subscribe, 0)
            )
        except OSError as error:
            _log.warning("hub.list_failed", reason=error.strerror or str(error))

    # For operators

    def snapshot(self) -> list[dict[str, Any]]:
        """Each leaf: whether its link is up, what it wants, and what it is told."""
        return [
            {
                "id": leaf,
                "up": bool(port.control.node.links.up),
                "served_by": _served_by(self._agent.settings.broker_id, leaf, port),
                "filters_wanted": self._wanted[leaf],
                "filters_told": len(self.switch.leaves[leaf].filters),
            }
            for leaf, port in sorted(self.ports.items())
        ]


def _served_by(hub: BrokerId, leaf: BrokerId, port: Agent) -> BrokerId:
    """The hub by which a leaf is served: as far as we know, us."""
    served = port.control.node.serving.of(leaf)
    return hub if served is None else served.hub


def _publications(added: Sequence[str], removed: Sequence[str]) -> CoverChange:
    """A change of what is wanted of clients' publications; other filters are between agents."""
    added, removed = ([f for f in each if not f.startswith("$")] for each in (added, removed))
    return CoverChange(tuple(sorted(added)), tuple(sorted(removed)))
