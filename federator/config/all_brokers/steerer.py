"""The settings of one steerer: first brokers, when to move a flow, how long a plan is valid."""

from typing import Annotated, Literal

from annotated_types import Interval, MaxLen

from federator.config.all_brokers.collector import FollowingSettings
from federator.config.section import STRICT, Passes, Section, Switch, WholeNumber, wrong
from federator.config.sections import HttpSettings, LogSettings
from federator.config.security import SteererKeySettings
from federator.config.topics import TopicFilters
from federator.protocol.messages.session_records import (
    COLLECTS_BYTES_MAX,
    COLLECTS_MAX,
    may_collect,
)
from federator.protocol.messages.steering import VALID_MS_MAX
from federator.protocol.types import BROKER_ID_MAX

_Span = Annotated[int, STRICT, Interval(ge=1_000, le=86_400_000)]


class SteeringSettings(Section):
    """When flows move."""

    threshold_percent: Annotated[WholeNumber, Interval(ge=10, le=95)] = 80
    """A link fuller than that is to be relieved."""
    margin_percent: Annotated[WholeNumber, Interval(ge=1, le=100)] = 10
    """What a move must save of the cost of all flows (rates times link costs), where it relieves no
    link."""
    hold_ms: _Span = 300_000
    """How long a flow stays where it was moved, unless a link to be relieved is over 95 %."""
    candidates_max: Annotated[WholeNumber, Interval(ge=1, le=10_000)] = 1_000
    """Flows that one decision may move: the heaviest."""
    solve_ms: Annotated[WholeNumber, Interval(ge=100, le=20_000)] = 8_000
    """Time for one decision."""
    cores: Switch = True
    """Place cores, too: of agents with mesh.core = "placed" (no others follow), where that saves
    margin_percent of messages times link costs, once per hold_ms at most."""
    valid_ms: Annotated[WholeNumber, Interval(ge=6_000, le=VALID_MS_MAX)] = 30_000
    """How long a plan is valid; it is renewed after a third of that. If the steerer dies, agents
    return to ordinary routes then."""


_Hub = Annotated[
    str, MaxLen(64), Passes(lambda given: str(given) if type(given) is int else given, raw=True)
]


class KeepSettings(Section):
    """Topics that stay at the edge ([placement.md], section 4), of agents with rules.placed = true;
    the hub's needs it, too."""

    hub: _Hub = ""
    """Id or name of the broker with the collecting clients. Empty: nothing is kept."""
    collects: TopicFilters = ()
    """What they collect: filters that they subscribe to, exactly so, over the shortest path
    (routing.filters of the hub's agent)."""
    policy: Literal["ns", "ep", "lp"] = "ns"
    """What stays of the topics that only the hub wants: "ns" and "ep": all; "lp": those that a
    client of the same broker subscribes to. The paper's other policies differ from "ns" in tables
    that brokers here do not have, or keep nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hub.isdecimal() and int(self.hub) > BROKER_ID_MAX:
            raise wrong("hub", f"hub = {self.hub} is no broker id", f"at most {BROKER_ID_MAX}")
        if self.hub and not self.collects:
            raise wrong("collects", "collects is empty", "name what clients of the hub collect")
        if self.collects and not self.hub:
            raise wrong("hub", "hub is empty", "name the broker whose clients collect")
        if not may_collect(self.collects):
            what = "collects is too long"
            mend = f"at most {COLLECTS_MAX} filters of {COLLECTS_BYTES_MAX} bytes together"
            raise wrong("collects", what, mend)


class SteererHttpSettings(HttpSettings):
    """The listener of /metrics, /healthz, /readyz and /status."""

    port: Annotated[WholeNumber, Interval(ge=0, le=65_535)] = 9886
    """0 takes any free port, which the log tells."""


class SteererSettings(FollowingSettings):
    """Everything one steerer needs to start."""

    steering: SteeringSettings = SteeringSettings()
    keep: KeepSettings = KeepSettings()
    keys: SteererKeySettings = SteererKeySettings()
    http: SteererHttpSettings = SteererHttpSettings()
    log: LogSettings = LogSettings()
