"""The settings of one collector: first brokers, folder, limits.

Read like an agent's settings: one TOML file, overridden by the environment, both by the command
line, and one line per error. A collector is no broker and needs no id.
"""

from pathlib import Path
from typing import Annotated

from annotated_types import Interval, MaxLen

from federator.config.brokers import Address, BrokerAddress, Credentials, check_named_once, in_clear
from federator.config.section import STRICT, Name, Section, Switch, WholeNumber, wrong
from federator.config.sections import HttpSettings, LogSettings
from federator.config.security import CollectorKeySettings
from federator.config.topology import HOSTS_MAX, HostPattern, host_matches
from federator.protocol.effects import Notice

COLLECTED_BROKERS_MAX = 512

_Span = Annotated[int, STRICT, Interval(ge=10, le=86_400_000)]


class CollectedBrokerSettings(BrokerAddress):
    """A broker to start from. Missing credentials come from ``[login]``."""


class LoginSettings(Credentials):
    """Credentials for brokers named by guides, and for configured ones without their own."""

    allow_plaintext: Switch = True
    """Connect to mqtt:// addresses of other hosts that guides name. A warning is logged when
    credentials are sent in clear."""
    hosts: Annotated[tuple[HostPattern, ...], MaxLen(HOSTS_MAX)] = ()
    """Hosts that guides may name: names, "*.example.org", networks like "10.1.0.0/16" for
    addresses. Empty: any, but without a password; one is sent to [[brokers]] and to these hosts
    only."""

    def check_host(self, address: Address) -> None:
        """Raise ``ValueError`` if our password may not be sent there: a guide may be forged."""
        has_secret = self.password is not None or self.password_file is not None
        if not self.hosts and not has_secret:
            return
        if not any(host_matches(pattern, address.host) for pattern in self.hosts):
            what = "our password is sent to no others" if has_secret else "others are not dialled"
            raise ValueError(f"{address.host} is none of login.hosts: {what}")


class LandingSettings(Section):
    """When a landed file is finished, and how long it is kept."""

    rotate_bytes: Annotated[WholeNumber, Interval(ge=1_024, le=2**30)] = 8_388_608
    """A file is landed when it has as many,"""
    rotate_ms: _Span = 10_000
    """or when it has been open for so long: the delay of the landing, and a file per broker each
    time."""
    sync: Switch = True
    """fsync before a file counts as landed. Without, a power cut may lose what was landed; a kill
    never does."""
    keep_days: Annotated[WholeNumber, Interval(ge=0, le=36_500)] = 0
    """Remove files of older days; 0 keeps all."""
    keep_bytes: Annotated[WholeNumber, Interval(ge=0, le=2**50)] = 0
    """Remove the oldest files beyond it; 0 keeps all."""


class CollectingSettings(Section):
    """How the spools of agents are read."""

    window_max: Annotated[WholeNumber, Interval(ge=1, le=1_000_000)] = 1_024
    """Batches (seconds) per request."""
    answer_ms: _Span = 5_000
    """Silence after which a request is repeated."""
    memory_bytes_max: Annotated[WholeNumber, Interval(ge=33_554_432, le=2**40)] = 268_435_456
    """Memory for lines not yet landed. From half of it on files are landed at once and requests
    stop; beyond it answers are dropped, and requested again."""


class CollectorHttpSettings(HttpSettings):
    """The listener of /metrics, /healthz, /readyz and /status."""

    port: Annotated[WholeNumber, Interval(ge=0, le=65_535)] = 9885
    """0 takes any free port, which is logged."""


class FollowingSettings(Section):
    """The settings for finding all brokers."""

    federation: Name = "fed"
    """Name shared by all agents."""
    only: Switch = False
    """Read only [[brokers]], and search for no others. `--only`"""
    brokers: Annotated[tuple[CollectedBrokerSettings, ...], MaxLen(COLLECTED_BROKERS_MAX)]
    """Any one is enough to find the others. `--broker URL` adds one."""
    login: LoginSettings = LoginSettings()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.brokers:
            raise wrong("brokers", "brokers is empty", "add [[brokers]] or --broker URL")
        check_named_once(self.brokers)

    def connection(self, broker: BrokerAddress) -> BrokerAddress:
        """``broker`` with the credentials of ``[login]`` where it has none."""
        return broker.with_credentials_of(self.login)

    def found(self, url: str) -> BrokerAddress:
        """How to reach the broker at a guide's ``url``. Raises ``ValueError``: not allowed."""
        address = Address.parse(url)
        self.login.check_host(address)
        if address.is_exposed and not self.login.allow_plaintext:
            raise ValueError(f"{url} is plaintext: login.allow_plaintext is false")
        return self.connection(BrokerAddress(url=url))

    def notices(self) -> tuple[Notice, ...]:
        """Warnings at start: credentials that are sent in clear."""
        return in_clear(
            (f"brokers.{index}", self.connection(broker))
            for index, broker in enumerate(self.brokers)
        )


class CollectorSettings(FollowingSettings):
    """Everything one collector needs to start."""

    landing: Path
    """Folder of the landed files; one collector each. `--to`"""
    files: LandingSettings = LandingSettings()
    reading: CollectingSettings = CollectingSettings()
    keys: CollectorKeySettings = CollectorKeySettings()
    http: CollectorHttpSettings = CollectorHttpSettings()
    log: LogSettings = LogSettings()
