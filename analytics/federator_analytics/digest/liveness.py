"""Who is alive and which links stand, as the events tell.

An agent reports the death of its own broker, unless its machine died too; then only the neighbours
tell, by the links that went down. So a broker is dead when its agent said so and took nothing back,
or when every link to it was reported down by the other end and it has not been heard of since: a
broker that is only cut off tells of the lost links itself. An agent that was told to stop says so
last: that is no death, and the links it takes along are no failure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from federator_analytics.digest.tables import Row, Tables

State = Literal["up", "down", "stopped"]
Pair = tuple[int, int]

CLOCKS_S = 2.0
"""A neighbour's word may be dated so much before the stop that it tells of."""

_BROKER_SAYS: Mapping[str, State] = {
    "agent_started": "up",
    "broker_up": "up",
    "broker_down": "down",
    "agent_stopped": "stopped",
}
_LINK_SAYS: Mapping[str, State] = {"link_up": "up", "link_down": "down"}


@dataclass(frozen=True, slots=True)
class Liveness:
    """States at the end of what the tables hold. A link is a pair ``a < b``.

    ``lost`` are the links that went down at some time, although neither end was told to stop: since
    when events are whole, for of before it is not known who was told to stop.
    """

    brokers: Mapping[int, State]
    links: Mapping[Pair, State]
    lost: frozenset[Pair]

    def of(self, state: State) -> list[int]:
        """The brokers in one state, smallest id first."""
        return sorted(broker for broker, found in self.brokers.items() if found == state)

    def cut(self) -> list[Pair]:
        """Links that are down although both of their brokers are alive."""
        return sorted(
            (a, b)
            for (a, b), state in self.links.items()
            if state == "down" and self.brokers[a] == self.brokers[b] == "up"
        )


def liveness(tables: Tables) -> Liveness:
    """The last known state of every broker and link that any table names."""
    own: dict[int, State] = {}
    ends: dict[Pair, tuple[State, datetime]] = {}  # (who says so, of whom)
    heard_of: dict[int, datetime] = {}
    lost = set()
    stops = _stops(tables["events"])
    whole_since = tables.cut.get("events")
    for event in sorted(tables["events"], key=lambda event: event["window_start"]):
        kind, broker, neighbour = event["kind"], event["broker"], event["neighbour"]
        if kind in _BROKER_SAYS:
            own[broker] = _BROKER_SAYS[kind]
        heard_of[broker] = event["window_start"]
        if kind in _LINK_SAYS and neighbour is not None:
            ends[broker, neighbour] = _LINK_SAYS[kind], event["window_start"]
            is_whole = whole_since is None or event["window_start"] >= whole_since
            if kind == "link_down" and is_whole and not _is_stopped(event, stops):
                lost.add(_pair(broker, neighbour))
    links: dict[Pair, State] = {
        (row["a"], row["b"]): "up" if row["up_share"] > 0 else "down" for row in tables["links"]
    }
    for (broker, neighbour), (state, _) in ends.items():
        others = ends.get((neighbour, broker), (state, None))[0]
        links[_pair(broker, neighbour)] = "down" if "down" in (state, others) else state
    ids = {row["broker"] for name in ("brokers", "events") for row in tables[name]}
    ids |= {end for pair in links for end in pair}
    brokers: dict[int, State] = {}
    for broker in sorted(ids):
        neighbours = [b if a == broker else a for a, b in links if broker in (a, b)]
        # One that died or stopped itself has its last word from before: it tells nothing.
        living = [other for other in neighbours if own.get(other, "up") == "up"]
        is_gone = _is_gone(broker, living, ends, heard_of.get(broker))
        said = own.get(broker, "up")
        brokers[broker] = "down" if is_gone and said == "up" else said
    return Liveness(brokers, links, frozenset(lost))


def _is_gone(
    broker: int,
    neighbours: Sequence[int],
    ends: Mapping[Pair, tuple[State, datetime]],
    last_word: datetime | None,
) -> bool:
    """Whether every living neighbour lost the broker, and it did not speak since."""
    told = [ends.get((other, broker)) for other in neighbours]
    losses = [at for each in told if each for state, at in [each] if state == "down"]
    if not losses or len(losses) < len(told):
        return False
    says_so_itself = all(
        each is not None and each[0] == "down"
        for each in (ends.get((broker, other)) for other in neighbours)
    )
    return not says_so_itself and (last_word is None or last_word < max(losses))


def _stops(events: Sequence[Row]) -> Mapping[int, list[tuple[datetime, bool]]]:
    """Per broker: when its agent started (False) and was stopped (True), in order."""
    stops: dict[int, list[tuple[datetime, bool]]] = {}
    for event in events:
        if event["kind"] in ("agent_started", "agent_stopped"):
            told = event["window_start"], event["kind"] == "agent_stopped"
            stops.setdefault(event["broker"], []).append(told)
    return {broker: sorted(found) for broker, found in stops.items()}


def _is_stopped(event: Row, stops: Mapping[int, list[tuple[datetime, bool]]]) -> bool:
    """Whether one end of the link that went down had been told to stop."""
    until = event["window_start"] + timedelta(seconds=CLOCKS_S)
    for end in (event["broker"], event["neighbour"]):
        before = [is_stop for at, is_stop in stops.get(end, []) if at <= until]
        if before and before[-1]:
            return True
    return False


def _pair(one: int, other: int) -> Pair:
    return min(one, other), max(one, other)
