"""The sections about automatic links and the hosts they may connect to, and about hubs and leaves.

Source: docs/topology.md; docs/hubs.md; docs/security.md, "Addresses".
"""

import ipaddress
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from annotated_types import Interval, MaxLen

from federator.config.brokers import Address, Url
from federator.config.section import (
    STRICT,
    BrokerNumber,
    Passes,
    SecretFile,
    Section,
    Takes,
    WholeNumber,
    readable_by,
    wrong,
)
from federator.config.security import KeySettings, TrustSettings
from federator.config.topics import TopicFilters
from federator.protocol.policy.rules import EVERYTHING, LinkRules
from federator.protocol.topology.parameters import NEIGHBOURS_MIN

SEEDS_MAX = 64
HOSTS_MAX = 256
DAY_MS = 86_400_000

_Span = Annotated[int, STRICT, Interval(ge=100, le=DAY_MS)]


def _check_host_pattern(text: str) -> None:
    if "/" in text:
        try:
            ipaddress.ip_network(text)
        except ValueError as error:
            what = f"{text[:60]!r} is not a network ({error})"
            raise ValueError(f"{what}: write one like 10.1.0.0/16") from error
        return
    name = text.removeprefix("*.")
    if not name or "*" in name or not name.isascii() or not name.isprintable() or " " in name:
        mend = "write gateway-7, *.example.org or 10.1.0.0/16"
        raise ValueError(f"{text[:60]!r} names no hosts: {mend}")


HostPattern = Annotated[str, readable_by(_check_host_pattern), Passes(str.lower)]


class TopologySettings(Section):
    """Links that agents create and end automatically, see topology.md."""

    mode: Literal["static", "auto"] = "static"
    """"static": links go to the [[neighbours]] and to brokers that name us as theirs; "auto":
    agents join by any seed, discover all others, and keep a few links near and far, so that no
    single failure splits the federation. [[neighbours]] are kept besides. A leaf chooses two hubs
    of its [[neighbours]]: near ones, and of these the least loaded."""
    seeds: Annotated[tuple[Url, ...], MaxLen(SEEDS_MAX)] = ()
    """With mode = "auto": brokers to join by, any one is enough; may name this one."""
    neighbours: Annotated[WholeNumber, Interval(ge=NEIGHBOURS_MIN, le=64)] = 6
    """Number of links; at times one more or less. About a third go to brokers nearby, the others
    keep the federation connected."""
    hosts: Annotated[tuple[HostPattern, ...], MaxLen(HOSTS_MAX)] = ()
    """Hosts to which automatic links are allowed: names, "*.example.org", networks like
    "10.1.0.0/16" for addresses. Empty: any, which with links.username needs a signed federation."""
    settle_ms: _Span = 10_000
    """Least time between two links given up without need."""
    patience_ms: _Span = 5_000
    """How long a broker is missing before others replace its links; 60000 at a leaf."""
    measure_ms: _Span = 10_000
    """Between two measurements of the distance to a broker without a link: a TCP connection, opened
    and closed."""
    exchange_ms: _Span = 180_000
    """Between two replacements of a neighbour by one at most half as far."""
    forget_s: Annotated[WholeNumber, Interval(ge=60, le=2**31)] = 86_400
    """How long we try to find a broker that is gone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode == "static" and self.seeds:
            what = 'topology.seeds with topology.mode = "static"'
            raise wrong("seeds", what, 'set topology.mode = "auto", or name them as [[neighbours]]')

    def allows(self, address: Address) -> bool:
        """Whether an automatic link to ``address`` is allowed."""
        return not self.hosts or any(host_matches(pattern, address.host) for pattern in self.hosts)


def host_matches(pattern: str, host: str) -> bool:
    """Whether ``host``, a name or an address, is one of ``pattern``."""
    if "/" in pattern:
        try:
            return ipaddress.ip_address(host) in ipaddress.ip_network(pattern)
        except ValueError:
            return False
    if pattern.startswith("*."):
        return host.lower().endswith(pattern[1:])
    return host.lower() == pattern


class HubSettings(TrustSettings):
    """The hub of [[leaves]], see hubs.md. Key files here belong to the leaves' own federation,
    named like this one with the suffix ".leaves".
    """

    agent_file: Annotated[Path | None, SecretFile.KEY] = None
    """This broker's key and certificate in the leaves' federation; closed to others."""
    filters_max: Annotated[WholeNumber, Interval(ge=3, le=1_000_000)] = 3_000
    """Filters advertised to a leaf for all others, and to the mesh for leaves and clients here.
    Where more than a third of it are wanted, several are merged into a wider one; the rest is for
    replaced ones, which are still advertised for a while."""
    leaf_filters_max: Annotated[WholeNumber, Interval(ge=1, le=1_000_000)] = 10_000
    """Filters that one leaf may want, besides those advertised to it; more are refused."""
    leaf_ann_gap_ms: Annotated[WholeNumber, Interval(ge=0, le=60_000)] = 250
    """Least time between two advertisements of changes to a leaf; the first after a quiet time is
    sent at once."""

    @property
    def announced_max(self) -> int:
        """Filters advertised to one side, with room for those that are still to be withdrawn."""
        return self.filters_max * 4 // 3

    @property
    def keys(self) -> KeySettings:
        """The key files for this broker's agents that serve leaves."""
        return KeySettings(
            agent_file=self.agent_file,
            federation_files=self.federation_files,
            revocations_file=self.revocations_file,
        )


class LeafSettings(Section):
    """A small broker attached to this one, see hubs.md."""

    entry_key: ClassVar[str] = "id"

    id: BrokerNumber
    """Its id; no other broker has it."""
    url: Url | None = None
    """URL of the leaf, if we connect to it, too."""
    imports: Annotated[TopicFilters, Takes.RELOAD] = EVERYTHING
    """Publications are taken from this leaf when one of these matches,"""
    exports: Annotated[TopicFilters, Takes.RELOAD] = EVERYTHING
    """and handed to it when one of these does,"""
    deny: Annotated[TopicFilters, Takes.RELOAD] = ()
    """and never, in either direction, when one of these does."""

    def rules(self) -> LinkRules:
        return LinkRules(imports=self.imports, exports=self.exports, deny=self.deny)
