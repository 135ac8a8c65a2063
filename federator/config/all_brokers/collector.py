"""What one collector can be told: where to begin, where to land, how much to hold.

The same manners as an agent's settings: one TOML file, the environment over it, the command line
over both, and one line per mistake. A collector is no broker and needs no id.
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
    """A broker to begin with. What it names no credentials for, ``[login]`` has."""


class LoginSettings(Credentials):
    """Who we are to brokers that guides tell of, and to named ones without credentials."""

    allow_plaintext: Switch = True
    """Go to mqtt:// addresses of other hosts that guides tell of. A warning is logged when
    credentials would travel in clear."""
    hosts: Annotated[tuple[HostPattern, ...], MaxLen(HOSTS_MAX)] = ()
    """Hosts that guides may send us to: names, "*.example.org", networks like "10.1.0.0/16" for
    addresses. Empty: any, but without a password; one is sent to [[brokers]] and to these hosts
    only."""

    def check_host(self, address: Address) -> None:
        """Raise ``ValueError`` where our password may not go: anybody may have written a guide."""
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
    """Batches (seconds) asked for at once."""
    answer_ms: _Span = 5_000
    """Silence after which a question is asked again."""
    memory_bytes_max: Annotated[WholeNumber, Interval(ge=33_554_432, le=2**40)] = 268_435_456
    """Of lines not yet landed. From half of it on files are landed at once and nothing is asked;
    beyond it answers are dropped, and asked for again."""


class CollectorHttpSettings(HttpSettings):
    """The listener of /metrics, /healthz, /readyz and /status."""

    port: Annotated[WholeNumber, Interval(ge=0, le=65_535)] = 9885
    """0 takes any free port, which the log tells."""


class FollowingSettings(Section):
    """What whoever reads all brokers needs to find them."""

    federation: Name = "fed"
    """Name shared by all agents."""
    only: Switch = False
    """Keep to [[brokers]], and look for no others. `--only`"""
    brokers: Annotated[tuple[CollectedBrokerSettings, ...], MaxLen(COLLECTED_BROKERS_MAX)]
    """Any one finds the others. `--broker URL` adds one."""
    login: LoginSettings = LoginSettings()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.brokers:
            raise wrong("brokers", "brokers is empty", "add [[brokers]] or --broker URL")
        check_named_once(self.brokers)

    def credential_holders(self) -> list[tuple[str, Credentials]]:
        """Every section that may name secrets, with its key."""
        named = [(f"brokers.{index}", broker) for index, broker in enumerate(self.brokers)]
        return [*named, ("login", self.login)]

    def connection(self, broker: BrokerAddress) -> BrokerAddress:
        """``broker`` with the credentials of ``[login]`` where it names none of its own."""
        return broker.with_credentials_of(self.login)

    def found(self, url: str) -> BrokerAddress:
        """How to reach the broker at a guide's ``url``; a ``ValueError`` where we may not go."""
        address = Address.parse(url)
        self.login.check_host(address)
        if address.is_exposed and not self.login.allow_plaintext:
            raise ValueError(f"{url} is plaintext: login.allow_plaintext is false")
        return self.connection(BrokerAddress(url=url))

    def notices(self) -> tuple[Notice, ...]:
        """What an operator should hear at start: credentials that travel in clear."""
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
