"""What one console can be told: where to begin, where it listens, and who may sign in."""

from pathlib import Path
from typing import Annotated

from annotated_types import Interval

from federator.config.all_brokers.collector import FollowingSettings
from federator.config.section import Core, Section, Switch, WholeNumber, wrong
from federator.config.sections import HttpSettings, LogSettings
from federator.config.security import ConsoleKeySettings


class ConsoleHttpSettings(HttpSettings):
    """The listener of the page, /healthz and /readyz."""

    port: Annotated[WholeNumber, Interval(ge=0, le=65_535)] = 9887
    """0 takes any free port, which the log tells."""
    behind_tls: Switch = False
    """A proxy in front of us speaks TLS: browsers are told to send the cookie of who is signed in
    over https:// alone. A proxy on this machine is believed from where they come
    (`X-Forwarded-For`)."""
    browsers_max: Annotated[WholeNumber, Interval(ge=1, le=10_000)] = 64
    """Pages that are kept current at once; a further one is told to come again."""


class OperatorsSettings(Section):
    """Who may sign in, to drain brokers. Everybody else may look, and nothing more."""

    file: Path | None = None
    """A line for each, `name:hash`, as `federator console --add-operator NAME` prints it; closed to
    others. Read at each attempt. None: nobody can sign in."""
    session_s: Annotated[WholeNumber, Interval(ge=60, le=2_592_000)] = 28_800
    """How long somebody stays signed in. All are signed out when the console starts again."""
    attempts_per_min: Annotated[WholeNumber, Interval(ge=1, le=600)] = 10
    """Attempts to sign in, of everybody together; further ones are refused unread. A browser in
    which an operator signed in before has half as many of its own."""


_Link = Annotated[str, Core(pattern=r"^(https?://[^\s\"'<>]{1,500})?$")]


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

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.http.enabled:
            raise wrong("http.enabled", "http.enabled = false", "a console is its page: set true")
