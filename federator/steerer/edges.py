"""Keeps topics at the edge: which ones, published in the same plans as trees.

No topic is listed anywhere. The hub's plan lists which of its filters only collect, and the hub
announces that to all; the other plans say to keep what no other broker wants. So each topic is
decided by its broker's agent, which learns of every subscriber at once; here we only count.

Source: docs/placement.md 4; docs/steering.md, "Topics at the edge".
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import structlog

from federator.config.all_brokers.steerer import KeepSettings
from federator.protocol.forwarding.keeping import KeepPolicy
from federator.protocol.messages.steering import FlowLoad, Load, Plan
from federator.protocol.types import BrokerId, Millis

SETTLED_MS: Final = Millis(10_000)
"""The kept rate is logged after the state was the same for so long."""

LISTED_MAX: Final = 1_000
TOLD_MAX: Final = 8

_log = structlog.get_logger()


class Kept(NamedTuple):
    """What is kept at all edges, or would be."""

    publications: float  # per second
    rate: float  # bit/s


class Edges:
    """What plans say about the edge, if anything is to be kept there.

    Attributes:
        wanted: Whether anything is to be kept.
    """

    def __init__(self, settings: KeepSettings) -> None:
        self._settings = settings
        self._policy = KeepPolicy.LP if settings.policy == "lp" else KeepPolicy.NS
        self.wanted = settings.hub != ""
        self._hub = BrokerId(int(settings.hub)) if settings.hub.isdecimal() else None
        self._loads: list[Load] = []  # the newest of each agent
        self._logged_state: tuple[object, ...] = ()
        # since when ``_logged_state`` waits to be logged; ``None``: it was
        self._since_ms: Millis | None = None

    def plan_of(self, broker: BrokerId) -> tuple[str, tuple[str, ...]]:
        """Contents of the plan of ``broker``: the keep policy, and filters that only collect."""
        if not self.wanted or self._hub is None:
            return "", ()
        if broker == self._hub:
            return "", self._settings.collects
        return self._policy.value, ()

    def adopt(self, plans: Iterable[Plan]) -> None:
        """Take over the hub of the steerer before us, until agents report a broker of its name."""
        for plan in plans:
            if self._hub is None and plan.collects == self._settings.collects:
                self._hub = BrokerId(plan.broker)

    def end(self) -> None:
        """Publish plans that keep nothing."""
        self.wanted = False

    def follow(self, loads: Iterable[Load], *, now_ms: Millis) -> bool:
        """Use the agents' newest loads. Returns whether plans changed."""
        self._loads = list(loads)
        if not self.wanted:
            return False
        before, self._hub = self._hub, self._find_hub()
        self._log_changes(now_ms)
        return self._hub != before

    def kept(self) -> Kept:
        kept = [load.kept for load in self._loads if load.kept is not None]
        return Kept(sum(t.publications for t in kept), sum(t.rate for t in kept))

    def would_keep(self) -> Kept:
        """What would be kept of the flows that agents report: only the hub wants it, to collect it.

        Under LP it may be less: subscriptions of the publishing broker's other clients are not
        reported.
        """
        flows = [flow for load in self._loads for flow in load.flows if self._is_collected(flow)]
        return Kept(sum(f.publications for f in flows), sum(f.rate for f in flows))

    def text(self) -> list[str]:
        """Format what would be kept, for people; empty if nothing is to be."""
        if not self.wanted:
            return []
        if self._hub is None:
            return [f"topics at the edge: {self._why_no_hub()}"]
        would = self.would_keep()
        most = "at most " if self._policy is KeepPolicy.LP else ""
        what = f"{would.publications:.3g} publications/s, {would.rate / 1e3:.3g} kbit/s"
        return [f"topics at the edge: {most}{what} that only {self._hub} collects would be kept"]

    def snapshot(self) -> dict[str, object]:
        """For ``/status``."""
        kept, (refused, followers) = self.kept(), self._answers()
        return {
            "hub": self._hub,
            "why": self._why_no_hub() if self.wanted and self._hub is None else "",
            "policy": self._settings.policy if self.wanted else None,
            "collects": list(self._settings.collects) if self.wanted else [],
            "collected": list(self._collected()),
            "keep": followers[:LISTED_MAX],
            "refuse": [{"broker": b, "why": why} for b, why in refused[:LISTED_MAX]],
            "publications": round(kept.publications, 2),
            "rate": round(kept.rate),
        }

    # Internal

    def _find_hub(self) -> BrokerId | None:
        named = self._settings.hub
        brokers = [load.broker for load in self._loads if load.name == named]
        if named.isdecimal() or not brokers:  # or its agent is silent for a while
            return self._hub
        return BrokerId(brokers[0]) if len(brokers) == 1 else None

    def _why_no_hub(self) -> str:
        count = sum(load.name == self._settings.hub for load in self._loads)
        brokers_text = "no broker" if not count else f"{count} brokers"
        return (
            f"{brokers_text} that we hear of named {self._settings.hub!r}: write the id of the hub"
        )

    def _is_collected(self, flow: FlowLoad) -> bool:
        only = flow.destinations == (self._hub,) and not flow.meshed
        return only and set(flow.filters) <= set(self._settings.collects)

    def _collected(self) -> tuple[str, ...]:
        """The filters that the hub reports as only collecting."""
        kept = [load.kept for load in self._loads if load.broker == self._hub]
        return kept[0].collects if kept and kept[0] is not None else ()

    def _answers(self) -> tuple[list[tuple[BrokerId, str]], list[BrokerId]]:
        """The brokers that do not follow, with the reason, and those that keep what they may."""
        refused: list[tuple[BrokerId, str]] = []
        followers: list[BrokerId] = []
        for load in sorted(self._loads, key=lambda load: load.broker):
            if load.kept is not None and load.kept.why_not:
                refused.append((load.broker, load.kept.why_not))
            elif load.kept is not None and load.broker != self._hub:
                followers.append(load.broker)
        return refused, followers

    def _log_changes(self, now_ms: Millis) -> None:
        refused, followers = self._answers()
        state = (self._hub, self._collected(), refused, followers)
        if state != self._logged_state:
            self._logged_state, self._since_ms = state, now_ms
        if self._since_ms is None or now_ms - self._since_ms < SETTLED_MS:
            return
        self._since_ms = None
        if self._hub is None:
            _log.warning("steer.no_hub", reason=self._why_no_hub())
            return
        for broker, why in refused[:TOLD_MAX]:
            _log.warning("steer.not_placed", broker=broker, reason=why)
        kept = self.kept()
        _log.info(
            "steer.kept",
            hub=self._hub,
            collected=list(self._collected()[:TOLD_MAX]),
            brokers=len(followers),
            publications=round(kept.publications, 2),
            rate=round(kept.rate),
        )
