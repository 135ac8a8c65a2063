"""Whether an agent is ready, and how it stands in the federation: two questions, two answers.

Ready: publications of its own broker are taken and delivered, each configured neighbour was tried,
and we could receive from each under our configuration. An orchestrator may act upon that. A
neighbour's fault is no reason to restart or remove a broker's only agent: the standing reports it
(``protocol.links.standing``).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from federator.protocol.links.standing import LinkJudge, Standing, Way, stand
from federator.protocol.node import Node
from federator.runtime.links.control_traffic import ControlTraffic
from federator.runtime.links.neighbour_links import NeighbourLink, NeighbourLinks
from federator.runtime.mqtt.failures import is_refusal
from federator.runtime.process.clocks import monotonic_ms


def way_of(neighbour: NeighbourLink, *, joined: bool) -> Way:
    """One address as ``protocol.links.standing`` wants it; seeds count until we ``joined``."""
    failure = "" if neighbour.connected else neighbour.last_error or "connecting"
    return Way(
        neighbour.address,
        neighbour.expected_id,
        kept=neighbour.kept or (neighbour.dialled_for is None and not joined),
        conn=neighbour.conn if neighbour.connected else None,
        failure=failure,
        refused=is_refusal(failure),
        peer=neighbour.control.peer,
        outbox_refused=neighbour.outbox_refused,
    )


@dataclass(frozen=True, slots=True)
class Condition:
    """Whether publications flow, and how we stand in the federation, at one moment."""

    why_not: str | None  # what keeps publications of our broker from flowing
    standing: Standing

    @property
    def ready(self) -> bool:
        return self.why_not is None

    @property
    def reason(self) -> str:
        """For people: what hinders, or how we stand."""
        return f"ready, {self.standing}" if self.why_not is None else self.why_not


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether one agent is ready, and how it stands."""

    node: Node
    traffic: ControlTraffic
    blocks: Iterable[Callable[[], str]]  # each returns what keeps publications here; empty: nothing
    hindrances: Callable[[], Iterable[str]]  # at our own broker, which leave it ready

    @property
    def neighbours(self) -> NeighbourLinks:
        return self.traffic.connections

    def __call__(self) -> tuple[bool, str]:
        condition = self.condition()
        return condition.ready, condition.reason

    def condition(self) -> Condition:
        return Condition(self.why_not(), self.standing())

    def standing(self) -> Standing:
        """How we stand in the federation."""
        joined = bool(self.node.links.up)
        ways = [way_of(neighbour, joined=joined) for neighbour in self.neighbours.all]
        return stand(self.judge(), ways, hindrances=self.hindrances(), now_ms=monotonic_ms())

    def judge(self) -> LinkJudge:
        """Judges the state of each address."""
        turned_away = self.traffic.turned_away.lately(monotonic_ms())
        leaf = self.neighbours.settings.role == "leaf"
        return LinkJudge(self.node.links, turned_away, leaf=leaf)

    def why_not(self) -> str | None:
        """What keeps publications of our own broker from flowing; ``None``: nothing."""
        for block in self.blocks:
            if why := block():
                return why
        if self.node.id_conflict_until_ms is not None:
            return f"id {self.node.links.self_id} is used by another agent too"
        for neighbour in self.neighbours.all:
            if neighbour.dialled_for is None and not neighbour.tried:
                return f"neighbour {neighbour.address}: not tried yet"
        return self._unheard()

    def _unheard(self) -> str | None:
        """The configured neighbour from which we cannot receive as things are, and why."""
        judge, now_ms = self.judge(), monotonic_ms()
        for neighbour in self.neighbours.all:
            if neighbour.kept and neighbour.connected:
                verdict = judge.find(way_of(neighbour, joined=True), now_ms=now_ms)
                if verdict.unheard:
                    return f"neighbour {neighbour.address}: {verdict.reason}"
        return None
