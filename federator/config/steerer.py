"""What one steerer can be told: where to begin, when to move a flow, for how long a plan holds."""

from typing import Annotated

from pydantic import Field, Strict

from federator.config.collector import FollowingSettings
from federator.config.section import Section, Switch, WholeNumber
from federator.config.sections import HttpSettings, LogSettings
from federator.config.security import SteererKeySettings
from federator.protocol.messages.steering import VALID_MS_MAX

_Span = Annotated[int, Strict(), Field(ge=1_000, le=86_400_000)]


class SteeringSettings(Section):
    """When flows move."""

    threshold_percent: WholeNumber = Field(default=80, ge=10, le=95)
    """A link fuller than that is to be relieved."""
    margin_percent: WholeNumber = Field(default=10, ge=1, le=100)
    """What a move must save of the cost of all flows (rates times link costs), where it relieves no
    link."""
    hold_ms: _Span = 300_000
    """How long a flow stays where it was moved, unless a link to be relieved is over 95 %."""
    candidates_max: WholeNumber = Field(default=1_000, ge=1, le=10_000)
    """Flows that one decision may move: the heaviest."""
    solve_ms: WholeNumber = Field(default=8_000, ge=100, le=20_000)
    """Time for one decision."""
    cores: Switch = True
    """Place cores, too: of agents with mesh.core = "placed" (no others follow), where that saves
    margin_percent of messages times link costs, once per hold_ms at most."""
    valid_ms: WholeNumber = Field(default=30_000, ge=6_000, le=VALID_MS_MAX)
    """For how long a plan holds; it is renewed after a third of that. If the steerer dies, agents
    take the ordinary ways after it."""


class SteererHttpSettings(HttpSettings):
    """The listener of /metrics, /healthz, /readyz and /status."""

    port: WholeNumber = Field(default=9886, ge=0, le=65_535)
    """0 takes any free port, which the log tells."""


class SteererSettings(FollowingSettings):
    """Everything one steerer needs to start."""

    steering: SteeringSettings = SteeringSettings()
    keys: SteererKeySettings = SteererKeySettings()
    http: SteererHttpSettings = SteererHttpSettings()
    log: LogSettings = LogSettings()
