"""What a scenario gave: figures of every run, the mesh, and what is not as it must be.

Source: Spohn 2021, 7 (Tables 2 and 3) and theorem 1.
"""

from dataclasses import dataclass, field

from federator.protocol.types import BrokerId
from lab.grid.scenario import Scenario
from lab.grid.tally import Arrivals
from lab.grid.topology import Mesh


@dataclass(frozen=True, slots=True)
class Delivery:
    """One row of a table: what one subscriber got in one run."""

    publications: int  # of the run
    place: BrokerId  # broker the subscriber is connected to
    subscriber: str  # ``A`` and ``B`` beside a single broker, else the broker's id
    hops: int  # links between publisher and subscriber, on a shortest path
    floor_ms: float  # the sum of their delays: what physics alone costs
    arrivals: Arrivals

    @property
    def added_ms(self) -> float:
        """Mean delay beyond the floor."""
        return self.arrivals.delay_ms_mean - self.floor_ms

    @property
    def added_per_hop_ms(self) -> float:
        """Mean delay beyond the floor, per link; all of it when there is no link."""
        return self.added_ms / max(self.hops, 1)


@dataclass(frozen=True, slots=True)
class Announcements:
    """What announcing cost since the first federated run."""

    count: int  # core announcements made
    messages: int  # publications that carried them
    flood: int  # publications of one announcement when all links delay alike
    bound: int  # Theorem 1: twice the number of links

    @property
    def per_announcement(self) -> float:
        """Publications per core announcement."""
        return self.messages / self.count


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything one scenario gave."""

    scenario: Scenario
    mesh: Mesh  # as the agents describe it
    relayed_to: tuple[BrokerId, ...]  # where the publisher's broker sends
    federated: list[Delivery]
    centralised: list[Delivery]
    announcements: Announcements | None  # ``None`` when they could not be counted
    control_sent: dict[str, int]  # control messages of all agents since their start, by kind
    # What is not as it must be, a line each; empty when all is well.
    faults: list[str] = field(default_factory=list)


def delivery_faults(deliveries: list[Delivery]) -> list[str]:
    """A line for every subscriber that did not get each publication once and in order."""
    return [
        f"{d.publications} publications to {d.subscriber} at broker {d.place}: "
        f"{d.arrivals.lost} lost, {d.arrivals.duplicates} twice, "
        f"{d.arrivals.disordered} out of order, {d.arrivals.foreign} foreign"
        for d in deliveries
        if not d.arrivals.exact
    ]


def differences_from_source(scenario: Scenario, mesh: Mesh) -> list[str]:
    """A line for every broker whose parents are not those that the scenario's source prints."""
    return [
        f"broker {here} has parents {mesh.parents.get(here, ())}; the source gives {parents}"
        for here, parents in scenario.parents.items()
        if mesh.parents.get(here) != parents
    ]


def announcement_faults(announcements: Announcements | None) -> list[str]:
    """A line when announcing cost more than the paper's bound."""
    if announcements is None or announcements.messages <= announcements.bound * announcements.count:
        return []
    return [
        f"{announcements.per_announcement:.1f} messages per core announcement: at most "
        f"{announcements.bound} wanted"
    ]
