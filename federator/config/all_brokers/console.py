"""The settings of one console: first brokers, listener, operators."""

from pathlib import Path
from typing import Annotated

from annotated_types import Interval

from federator.config.all_brokers.collector import FollowingSettings
from federator.config.section import Core, SecretFile, Section, Switch, WholeNumber, wrong
from federator.config.sections import HttpSettings, LogSettings
from federator.config.security import ConsoleKeySettings


class ConsoleHttpSettings(HttpSettings):
    """The listener of the page, /healthz and /readyz."""

    port: Annotated[WholeNumber, Interval(ge=0, le=65_535)] = 9887
    """0 takes any free port, which is logged."""
    behind_tls: Switch = False
    """A proxy in front of us terminates TLS: browsers send the session cookie only over https://.
    The client addresses of a proxy on this machine are trusted (`X-Forwarded-For`)."""
    browsers_max: Annotated[WholeNumber, Interval(ge=1, le=10_000)] = 64
    """Pages with live updates at a time; a further one has to retry."""


class OperatorsSettings(Section):
    """Operators, who may sign in to drain brokers. Other visitors can only read."""

    file: Annotated[Path | None, SecretFile.KEY] = None
    """A line for each, `name:hash`, as `federator console --add-operator NAME` prints it; closed to
    others. Read at each attempt. None: no sign-in."""
    session_s: Annotated[WholeNumber, Interval(ge=60, le=2_592_000)] = 28_800
    """How long a session lasts. All sessions end when the console restarts."""
    attempts_per_min: Annotated[WholeNumber, Interval(ge=1, le=600)] = 10
    """Sign-in attempts, of all visitors together; further ones are refused unread. A browser in
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
