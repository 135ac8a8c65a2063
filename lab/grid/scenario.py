"""What one run of the grid does: who subscribes, who publishes, how much and how fast.

``spohn2021`` is the evaluation of Spohn 2021, 7. ``ribas2022`` is the evaluation
kit of its Rust successor: the same grid numbered from 1, larger payloads, and each message
published when the one before it has arrived everywhere, which measures delay without queueing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from federator.protocol.types import BrokerId
from lab.grid.topology import Grid, Linked

PAYLOAD_BYTES_MIN = 24  # the stamp that measurement clients put in front
PUBLICATIONS_MAX = 10_000_000
BROKERS_MAX = 400  # two processes each


@dataclass(frozen=True, slots=True)
class Published:
    """A figure printed in a paper: mean and standard deviation, in milliseconds."""

    delay_ms: float
    deviation_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """Who is linked to whom, who subscribes, and who publishes how much and how fast."""

    grid: Linked  # the brokers and links
    link_delay_ms: float  # added by every link, each way
    subscribers: tuple[BrokerId, ...]  # one client on each, all with the same filter
    publishers: tuple[BrokerId, ...]  # brokers with a publisher; they take turns
    runs: tuple[int, ...]  # publications of each publisher, one run after the other
    # Least and most time between publications, drawn uniformly. ``(0, 0)``: each is sent when the
    # one before has arrived everywhere.
    gap_ms: tuple[float, float]
    payload_bytes: int = 64  # of each publication
    qos: int = 0  # of publications and subscriptions
    local: bool = True  # whether a subscriber on the publisher's own broker counts
    step: int = 0  # note when each so many publications are complete; 0: never

    def way(self, publisher: BrokerId, to: BrokerId) -> tuple[int, float]:
        """Hops on a shortest path, and the sum of their delays."""
        hops = self.grid.hops_from(publisher)[to]
        return hops, hops * self.link_delay_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(Arrangement):
    """One experiment on a grid, beside the figures that a paper gives for it."""

    name: str  # the preset's name, or ``grid``
    grid: Grid
    redundancy: int  # parents per broker
    centralised: tuple[BrokerId, ...] = ()  # brokers that also serve alone, each in Table 3
    # The parents that the source gives, where it does.
    parents: Mapping[BrokerId, tuple[BrokerId, ...]] = field(default_factory=dict)
    # Table 2: by (publications, subscriber).
    federated_ms: Mapping[tuple[int, BrokerId], Published] = field(default_factory=dict)
    # Table 3: by (publications, broker), subscribers A and B.
    centralised_ms: Mapping[tuple[int, BrokerId], tuple[Published, Published]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        ids = set(self.grid.ids)
        if len(ids) > BROKERS_MAX:
            raise ValueError(f"{len(ids)} brokers: at most {BROKERS_MAX} wanted")
        if not self.subscribers or len(set(self.subscribers)) != len(self.subscribers):
            raise ValueError(f"subscribers {self.subscribers}: at least one, each once, wanted")
        for broker in (*self.subscribers, *self.publishers, *self.centralised):
            if broker not in ids:
                has = f"{min(ids)} to {max(ids)}"
                raise ValueError(f"broker {broker} is not in the grid, which has {has}")
        if self.payload_bytes < PAYLOAD_BYTES_MIN:
            wanted = f"at least {PAYLOAD_BYTES_MIN} wanted"
            raise ValueError(f"payload of {self.payload_bytes} bytes: {wanted}")
        if not 0 <= self.gap_ms[0] <= self.gap_ms[1]:
            raise ValueError(f"gap of {self.gap_ms} ms: least and most, not negative, wanted")
        if not all(0 < count <= PUBLICATIONS_MAX for count in self.runs):
            raise ValueError(f"publications {self.runs}: 1 to {PUBLICATIONS_MAX} wanted")
        if self.link_delay_ms < 0 or self.redundancy < 1 or self.qos not in (0, 1, 2):
            raise ValueError("delay not negative, redundancy at least 1 and QoS 0, 1 or 2 wanted")

    @property
    def publisher(self) -> BrokerId:
        """The broker that the one publisher is connected to."""
        return self.publishers[0]

    @property
    def publishing_s(self) -> float:
        """About how long the runs publish: the federated one after the other, the rest at once."""
        at_once = max(self.runs) if self.centralised else 0
        return (sum(self.runs) + at_once) * sum(self.gap_ms) / 2 / 1000


def _ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def _parents(parents: dict[int, tuple[int, ...]]) -> dict[BrokerId, tuple[BrokerId, ...]]:
    return {BrokerId(here): _ids(*others) for here, others in parents.items()}


SPOHN2021 = Scenario(
    name="spohn2021",
    grid=Grid(3, 3, first_id=0),
    link_delay_ms=5,
    redundancy=2,
    subscribers=_ids(2, 7),
    publishers=_ids(6),
    runs=(500, 1000),
    gap_ms=(50, 100),
    payload_bytes=64,
    centralised=_ids(2, 7),
    parents=_parents({7: (4, 8), 4: (1, 5), 8: (5,), 1: (2,), 5: (2,)}),
    federated_ms={
        (500, BrokerId(2)): Published(34.64, 3.21),
        (500, BrokerId(7)): Published(18.65, 3.2),
        (1000, BrokerId(2)): Published(34.77, 3.17),
        (1000, BrokerId(7)): Published(18.61, 3.17),
    },
    centralised_ms={
        (500, BrokerId(2)): (Published(34.59, 3.13), Published(42.47, 4.37)),
        (500, BrokerId(7)): (Published(18.63, 3.2), Published(26.69, 4.77)),
        (1000, BrokerId(2)): (Published(34.58, 3.23), Published(42.58, 4.48)),
        (1000, BrokerId(7)): (Published(18.47, 3.22), Published(26.42, 4.56)),
    },
)

RIBAS2022 = Scenario(
    name="ribas2022",
    grid=Grid(3, 3, first_id=1),
    link_delay_ms=5,
    redundancy=2,
    subscribers=_ids(3, 8),
    publishers=_ids(7),
    runs=(1000,),
    gap_ms=(0, 0),
    payload_bytes=122,
    parents=_parents(
        {1: (2,), 2: (3,), 4: (1, 5), 5: (2, 6), 6: (3,), 7: (4, 8), 8: (5, 9), 9: (6,)}
    ),
)

PRESETS = {scenario.name: scenario for scenario in (SPOHN2021, RIBAS2022)}


def default_scenario(grid: Grid) -> Scenario:
    """The paper's arrangement on any grid: subscribers in a corner and at the far edge's middle.

    On 3 x 3 it has the places of ``spohn2021``: 2 and 7, publishing at 6.
    """
    corner = grid.ids[grid.columns - 1]
    edge = grid.ids[-grid.columns :]
    return replace(
        SPOHN2021,
        name="grid",
        grid=grid,
        subscribers=tuple(sorted({corner, edge[len(edge) // 2]})),
        publishers=edge[:1],
        runs=(500,),
        centralised=(),
        parents={},
        federated_ms={},
        centralised_ms={},
    )
