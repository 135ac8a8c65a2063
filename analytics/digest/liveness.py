"""Who is alive and which links stand, as the last events say.

An agent reports the death of its own broker, unless its machine died too; then only the neighbours
tell, by the links that went down. So a broker is dead when it said so itself and took nothing back,
or when every link to it was reported down by the other end.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from analytics.digest.tables import Row, Tables

State = Literal["up", "down", "unknown"]

_BROKER_SAYS: Mapping[str, State] = {
    "agent_started": "up",
    "broker_up": "up",
    "broker_down": "down",
    "agent_stopped": "down",
}
_LINK_SAYS: Mapping[str, State] = {"link_up": "up", "link_down": "down"}


@dataclass(frozen=True, slots=True)
class Liveness:
    """States at the end of what the tables hold. A link is a pair ``a < b``."""

    brokers: Mapping[int, State]
    links: Mapping[tuple[int, int], State]

    def dead(self) -> list[int]:
        """Brokers that are down, smallest id first."""
        return sorted(broker for broker, state in self.brokers.items() if state == "down")

    def cut(self) -> list[tuple[int, int]]:
        """Links that are down although both of their brokers are alive."""
        dead = set(self.dead())
        return sorted(
            pair for pair, state in self.links.items() if state == "down" and not dead & set(pair)
        )


def liveness(tables: Tables) -> Liveness:
    """The last known state of every broker and link that any table names."""
    events = sorted(tables["events"], key=lambda event: event["window_start"])
    own: dict[int, State] = {}
    ends: dict[tuple[int, int], State] = {}  # (who says so, of whom)
    for event in events:
        kind, broker, neighbour = event["kind"], event["broker"], event["neighbour"]
        if kind in _BROKER_SAYS:
            own[broker] = _BROKER_SAYS[kind]
        if kind in _LINK_SAYS and neighbour is not None:
            ends[broker, neighbour] = _LINK_SAYS[kind]
    links = {(row["a"], row["b"]): _from_share(row) for row in tables["links"]}
    for (broker, neighbour), state in ends.items():
        pair = min(broker, neighbour), max(broker, neighbour)
        others = ends.get((neighbour, broker))
        links[pair] = "down" if "down" in (state, others) else state
    brokers: dict[int, State] = {}
    for broker in broker_ids(tables):
        heard = [ends.get((other, broker)) for other in _neighbours(broker, links)]
        if own.get(broker) == "down" or (heard and all(state == "down" for state in heard)):
            brokers[broker] = "down"
        else:
            brokers[broker] = "up"
    return Liveness(brokers, links)


def broker_ids(tables: Tables) -> list[int]:
    """Every broker that reported, or that a neighbour named, smallest id first."""
    ids = {row["broker"] for row in tables["brokers"]}
    ids |= {end for row in tables["links"] for end in (row["a"], row["b"])}
    ids |= {row["broker"] for row in tables["events"]}
    return sorted(ids)


def _from_share(row: Row) -> State:
    """A link of which no event tells was up all the time, never, or nobody knows when."""
    if row["up_share"] >= 1:
        return "up"
    return "down" if row["up_share"] <= 0 else "unknown"


def _neighbours(broker: int, links: Iterable[tuple[int, int]]) -> list[int]:
    return [b if a == broker else a for a, b in links if broker in (a, b)]
