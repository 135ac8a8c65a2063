"""What one console can be told: where to begin, where it listens, and who may sign in."""

from pathlib import Path
from typing import Annotated, Self

from federator.config.all_brokers.collector import FollowingSettings
from federator.config.held.models import Field, StringConstraints, model_validator
from federator.config.section import Section, Switch, WholeNumber, wrong
from federator.config.sections import HttpSettings, LogSettings
from federator.config.security import ConsoleKeySettings


class ConsoleHttpSettings(HttpSettings):
    """The listener of the page, /healthz and /readyz."""

    port: WholeNumber = Field(default=9887, ge=0, le=65_535)
    """0 takes any free port, which the log tells."""
    behind_tls: Switch = False
    """A proxy in front of us speaks TLS: browsers are told to send the cookie of who is signed in
    over https:// alone. A proxy on this machine is believed from where they come
    (`X-Forwarded-For`)."""
    browsers_max: WholeNumber = Field(default=64, ge=1, le=10_000)
    """Pages that are kept current at once; a further one is told to come again."""


class OperatorsSettings(Section):
    """Who may sign in, to drain brokers. Everybody else may look, and nothing more."""

    file: Path | None = None
    """A line for each, `name:hash`, as `federator console --add-operator NAME` prints it; closed to
    others. Read at each attempt. None: nobody can sign in."""
    session_s: WholeNumber = Field(default=28_800, ge=60, le=2_592_000)
    """How long somebody stays signed in. All are signed out when the console starts again."""
    attempts_per_min: WholeNumber = Field(default=10, ge=1, le=600)
    """Attempts to sign in, of everybody together; further ones are refused unread. A browser in
    which an operator signed in before has half as many of its own."""


_Link = Annotated[str, StringConstraints(pattern=r"^(https?://[^\s\"'<>]{1,500})?$")]


class ConsoleSettings(FollowingSettings):
    """Everything one console needs to start."""

    history: _Link = ""
    """Where `federator-analytics serve` shows the last hours, `http://HOST:PORT`, as browsers
    reach it: the page leads there."""
    history_source: _Link = ""
    """Where we reach that dashboard ourselves, to show of it what concerns a broker or a topic;
    empty: at `history`."""
    keys: ConsoleKeySettings = ConsoleKeySettings()
    operators: OperatorsSettings = OperatorsSettings()
    http: ConsoleHttpSettings = ConsoleHttpSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _listens(self) -> Self:
        if not self.http.enabled:
            raise wrong("http.enabled", "http.enabled = false", "a console is its page: set true")
        return self
