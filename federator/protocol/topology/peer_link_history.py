"""The links that one agent has, tries to have, or gave up, and since when.

A link is dialled, comes up or does not, goes down, and is given up. Whether to keep trying, to try
again, or to pass a broker over depends on how long its state has lasted.

Source: docs/topology.md.
"""

from federator.protocol.links.links import Links
from federator.protocol.types import BrokerId, Millis


class PeerLinkHistory:
    """The state of an agent's present, attempted and former links."""

    def __init__(self, *, cool_ms: int) -> None:
        self.dials: dict[BrokerId, str] = {}  # addresses that the driver dials for us
        self.up_ms: dict[BrokerId, Millis] = {}  # since when a link is up
        self.idle_ms: dict[BrokerId, Millis] = {}  # since when we try without success
        self.fallen: set[BrokerId] = set()  # brokers in ``idle_ms`` to which a link was up
        # Until when unreachable brokers are passed over.
        self.passed_over: dict[BrokerId, Millis] = {}
        self._cool_ms = cool_ms  # how long a link that was given up is remembered
        self._parted_ms: dict[BrokerId, Millis] = {}  # when links were given up

    def update(self, links: Links, now_ms: Millis) -> None:
        """Update the state from the present links."""
        up = links.up
        fell = {id for id in self.up_ms if id not in up}
        self.up_ms = {id: self.up_ms.get(id, now_ms) for id in up}
        tried = {id for id, neighbour in links.neighbours.items() if neighbour.conn is not None}
        tried |= self.dials.keys()
        self.idle_ms = {id: self.idle_ms.get(id, now_ms) for id in tried if id not in up}
        self.fallen = {id for id in self.fallen | fell if id in self.idle_ms}
        for id in [id for id, until in self.passed_over.items() if until <= now_ms or id in up]:
            del self.passed_over[id]
        cooled = [id for id, since in self._parted_ms.items() if now_ms - since >= self._cool_ms]
        for id in cooled:
            del self._parted_ms[id]
        for id in up:  # two paths to one broker: ``links`` keeps the first
            conn = links.neighbours[id].conn
            address = links.connections[conn].address if conn is not None else ""
            if self.dials.get(id, address) != address:
                del self.dials[id]

    def knows(self, id: BrokerId) -> bool:
        """Whether there is a link, or we try to have one, or failed not long ago."""
        return id in self.up_ms or id in self.idle_ms or id in self.passed_over

    def on_dialled(self, id: BrokerId, address: str, now_ms: Millis) -> None:
        """Note that the driver was ordered to dial ``id``."""
        self.dials[id] = address
        self.idle_ms.setdefault(id, now_ms)

    def part(self, id: BrokerId, now_ms: Millis) -> bool:
        """Note that the link is given up; return whether the driver must stop dialling."""
        self.up_ms.pop(id, None)
        self.idle_ms.pop(id, None)
        self._parted_ms[id] = now_ms
        return self.dials.pop(id, None) is not None

    def parted_lately(self, id: BrokerId, within_ms: int, now_ms: Millis) -> bool:
        """Whether a link was given up within the last ``within_ms``."""
        since_ms = self._parted_ms.get(id)
        return since_ms is not None and now_ms - since_ms < within_ms

    def forgive(self, id: BrokerId) -> None:
        """Forget that a link was given up: the reason was only a new address."""
        self._parted_ms.pop(id, None)
