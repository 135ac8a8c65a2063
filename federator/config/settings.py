"""The settings of one agent, as one frozen record of sections.

Each section is a table of the TOML file. This module has the rules between sections, and derives
the protocol's parameters and the connections to neighbours.
"""

from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import MaxLen

from federator.config.brokers import (
    Address,
    BrokerAddress,
    BrokerSettings,
    Credentials,
    NeighbourSettings,
    ProxySettings,
    in_clear,
    proxies_in_clear,
)
from federator.config.opentelemetry import OpenTelemetrySettings, require_exporter
from federator.config.section import NAME_MAX, Name, Section, Takes, unusable, wrong
from federator.config.sections import (
    AgentFailoverSettings,
    CustodySettings,
    DataSettings,
    DiscoverySettings,
    HomeAssistantSettings,
    HttpSettings,
    LinkSettings,
    LogSettings,
    MeshSettings,
    MetricsSettings,
    RetainedSettings,
    RoutingSettings,
    ShareSettings,
    SteerSettings,
)
from federator.config.security import REVOCATIONS_KEPT, KeySettings, Security
from federator.config.topics import LoopSettings, RulesSettings, check_conflict
from federator.config.topology import HubSettings, LeafSettings, TopologySettings
from federator.config.transports import DirectSettings, Transport, UdpSettings, require_codec
from federator.protocol.controller.failover import FailoverParameters
from federator.protocol.controller.presence import PresenceParameters
from federator.protocol.effects import Notice
from federator.protocol.leaves.names import federation_of_leaf, key_federation
from federator.protocol.messages.control import NEIGHBOURS_MAX
from federator.protocol.parameters import LinkCost, Parameters, Strategy
from federator.protocol.policy.rules import EVERYTHING, LinkRules
from federator.protocol.sharing.ledger import LedgerParameters
from federator.protocol.topology.parameters import TopologyParameters
from federator.protocol.types import BrokerId, Millis

LEAVES_MAX = 256
HUBS_KNOWN_MAX = 16
LEAF_DEFAULTS = (
    ("failover", "enabled", False),
    ("share", "scope", "broker"),
    ("links", "dial", "out"),
    ("routing", "strategy", "shortest-path"),
    ("topology", "patience_ms", 60_000),
)
"""Keys with another default at a leaf; the first two must have these values."""

_Parameters = Parameters | TopologyParameters | FailoverParameters | PresenceParameters


def _same(kind: type[_Parameters | LedgerParameters], section: Section) -> dict[str, Any]:
    """The values of ``section`` for fields of ``kind`` with the same names."""
    names = {part.name for part in fields(section)} & {part.name for part in fields(kind)}
    return {name: getattr(section, name) for name in names}


class Settings(Section):
    """Everything one agent needs to start."""

    federation: Name = "fed"
    """Name shared by all agents: 1 to 64 of A-Z a-z 0-9 _ . -"""
    role: Literal["member", "leaf"] = "member"
    """"leaf": a small broker attached to a hub, which receives only a few filters from the
    federation; its [[neighbours]] are that hub, and perhaps one in reserve, or with topology.mode =
    "auto" all hubs that accept it; see hubs.md."""
    state_dir: Path = Path("/var/lib/federator")
    """Folder for the epoch, learned subscriptions and http.port; one agent each."""
    former: Path | None = None
    """While this broker changes its role: its configuration file from before, read without the
    environment. The work of that agent is completed beside this one, and nothing is lost. Remove
    the key when the log says "move.ended"; see hubs.md."""
    security: Security = "signed"
    """"signed": agents authenticate, nothing can be forged or replayed, and the brokers in between
    can read everything; "sealed": as "signed", and these cannot read forwarded data; "proven": as
    "signed", and no agent in between can change or invent QoS 1 and 2 publications; "open": any
    client that may publish on a broker's control topics is trusted. See [keys]."""
    broker: BrokerSettings
    neighbours: Annotated[tuple[NeighbourSettings, ...], Takes.RELOAD, MaxLen(NEIGHBOURS_MAX)] = ()
    """Brokers to link with."""
    hub: HubSettings = HubSettings()
    leaves: Annotated[tuple[LeafSettings, ...], MaxLen(LEAVES_MAX)] = ()
    """Small brokers attached to this one, which makes it a hub."""
    topology: TopologySettings = TopologySettings()
    links: LinkSettings = LinkSettings()
    direct: DirectSettings = DirectSettings()
    udp: UdpSettings = UdpSettings()
    mesh: MeshSettings = MeshSettings()
    routing: RoutingSettings = RoutingSettings()
    custody: CustodySettings = CustodySettings()
    data: DataSettings = DataSettings()
    discovery: DiscoverySettings = DiscoverySettings()
    share: ShareSettings = ShareSettings()
    rules: Annotated[RulesSettings, Takes.RELOAD] = RulesSettings()
    loops: LoopSettings = LoopSettings()
    retained: RetainedSettings = RetainedSettings()
    failover: AgentFailoverSettings = AgentFailoverSettings()
    metrics: MetricsSettings = MetricsSettings()
    opentelemetry: OpenTelemetrySettings = OpenTelemetrySettings()
    steer: SteerSettings = SteerSettings()
    keys: KeySettings = KeySettings()
    http: HttpSettings = HttpSettings()
    home_assistant: HomeAssistantSettings = HomeAssistantSettings()
    log: LogSettings = LogSettings()

    @classmethod
    def completed(cls, values: Any) -> Any:  # noqa: ANN401 - whatever a file holds
        """Add the defaults of a leaf, and the name of its federation with its hub."""
        if not (isinstance(values, dict) and values.get("role") == "leaf"):
            return values
        values = dict(values)
        for section, key, value in LEAF_DEFAULTS:
            held = values.get(section, {})
            if isinstance(held, dict):
                values[section] = {key: value} | held
        broker, federation = values.get("broker"), values.get("federation", "fed")
        id = broker.get("id") if isinstance(broker, dict) else None
        if isinstance(federation, str) and isinstance(id, int):
            named = federation.removesuffix(federation_of_leaf("", id))
            values["federation"] = federation_of_leaf(named, id)
        return values

    def __post_init__(self) -> None:
        super().__post_init__()
        self._a_leaf_has_one_hub()
        self._leaves_are_others()
        self._neighbours_are_others()
        self._seeds_are_no_neighbours()
        self._passwords_stay_among_us()
        self._no_link_asks_for_what_is_denied()
        self._plaintext_is_wanted()
        self._transports_are_safe()
        self._nothing_is_taken_out_of_what_is_proven()

    def _a_leaf_has_one_hub(self) -> None:
        if self.role == "leaf":
            from federator.protocol.leaves.nearest_hubs import HUBS_TAKEN  # noqa: PLC0415 - leaves'

            if self.leaves:
                raise wrong("leaves", "a leaf has no leaves", "remove them, or role")
            if self.topology.seeds:
                what = "a leaf hangs on hubs that have an entry for it"
                raise wrong("topology.seeds", what, "name them as [[neighbours]]")
            hubs_max = HUBS_KNOWN_MAX if self.finds_hubs else HUBS_TAKEN
            if not 1 <= len(self.neighbours) <= hubs_max:
                what = f"a leaf has one hub or two, and {len(self.neighbours)} neighbours are named"
                mend = "name its hub, and perhaps one in reserve"
                if self.finds_hubs:
                    what = f"{len(self.neighbours)} hubs are named to choose from"
                    mend = f"name 1 to {HUBS_KNOWN_MAX}"
                elif len(self.neighbours) <= HUBS_KNOWN_MAX:
                    mend += ', or set topology.mode = "auto" to have it choose'
                raise wrong("neighbours", what, mend)
            for index, hub in enumerate(self.neighbours):
                if hub.id is None and (self.finds_hubs or len(self.neighbours) > 1):
                    raise wrong(f"neighbours.{index}.id", "it is missing", "name each hub's id")
            for section, key, value in LEAF_DEFAULTS[:2]:
                if getattr(getattr(self, section), key) != value:
                    what = f"{section}.{key} does not reach through a hub"
                    raise wrong(f"{section}.{key}", what, "remove it, or role")

    def _leaves_are_others(self) -> None:
        named = {
            neighbour.id: "a neighbour" for neighbour in self.neighbours if neighbour.id is not None
        }
        named[self.broker.id] = "this broker"
        for index, leaf in enumerate(self.leaves):
            if leaf.id in named:
                what = f"id {leaf.id} is of a leaf and of {named[leaf.id]}"
                raise wrong(f"leaves.{index}.id", what, "give every broker its own id")
            named[leaf.id] = "another leaf"
            check_conflict(leaf, f"leaves[{index}]", leaf.deny, by="its deny", at=f"leaves.{index}")
            if self.security == "proven" and not leaf.rules().stops_nothing:
                what = "rules of a leaf take publications out of what its origin signed"
                raise wrong(f"leaves.{index}", what, 'use security = "signed", or no rules')
            name = federation_of_leaf(self.federation, leaf.id)
            if len(name) > NAME_MAX:
                what = f"{name!r}, the federation of a leaf, has more than {NAME_MAX} characters"
                raise wrong("federation", what, "shorten it")
            if leaf.url is not None and Address.parse(leaf.url) == self.broker.address:
                what = f"{leaf.url} is already broker.url"
                raise wrong(f"leaves.{index}.url", what, "name each broker once")

    def _neighbours_are_others(self) -> None:
        ids: set[int] = set()
        addresses = {self.broker.address: "broker.url"}
        for index, neighbour in enumerate(self.neighbours):
            at, label = f"neighbours.{index}", f"neighbour id {neighbour.id}"
            if neighbour.id == self.broker.id:
                what = f"{label} is this broker's own id"
                raise wrong(f"{at}.id", what, "give every broker its own id")
            if neighbour.id in ids:
                raise wrong(f"{at}.id", f"{label} appears twice", "remove one, or correct its id")
            if neighbour.id is not None:
                ids.add(neighbour.id)
            if neighbour.address in addresses:
                what = f"{neighbour.url} is already {addresses[neighbour.address]}"
                raise wrong(f"{at}.url", what, "name each broker once")
            addresses[neighbour.address] = f"{at}.url"

    def _seeds_are_no_neighbours(self) -> None:
        named = {n.address: f"neighbours[{i}]" for i, n in enumerate(self.neighbours)}
        for index, seed in enumerate(self.topology.seeds):
            if (key := named.get(Address.parse(seed))) is not None:
                mend = "a neighbour that is kept is a seed, too: remove it from topology.seeds"
                raise wrong(f"topology.seeds.{index}", f"{seed} is already {key}.url", mend)

    def _passwords_stay_among_us(self) -> None:
        topology = self.topology
        exposed = self.security == "open" and self.links.username is not None
        if topology.mode == "auto" and exposed and not (topology.hosts or self.finds_hubs):
            what = "in an open federation any client can name an address, and links.username and "
            what += "its password would be sent there"
            mend = "list the hosts of the federation in topology.hosts, or sign it"
            raise wrong("topology.hosts", what, mend)

    def _no_link_asks_for_what_is_denied(self) -> None:
        for index, neighbour in enumerate(self.neighbours):
            explicit = (neighbour.imports, neighbour.exports) != (EVERYTHING, EVERYTHING)
            if explicit and self.rules.deny:
                at = f"neighbours.{index}"
                check_conflict(neighbour, f"neighbours[{index}]", self.rules.deny, at=at)

    def _plaintext_is_wanted(self) -> None:
        if not self.links.allow_plaintext:
            named = [(f"{at}.url", connection.url) for at, connection in self.connections()]
            named += [(f"topology.seeds.{i}", url) for i, url in enumerate(self.topology.seeds)]
            for key, url in named:
                address = Address.parse(url)
                if address.is_exposed:
                    mend = f"use {address.with_tls}, or set links.allow_plaintext = true"
                    raise wrong(key, f"{url} is plaintext off this host", mend)

    def _transports_are_safe(self) -> None:
        asked: list[tuple[str, str | None]] = [("links", self.links.transport)]
        asked += [(f"neighbours.{i}", n.transport) for i, n in enumerate(self.neighbours)]
        for at, transport in asked:
            if transport == "udp-fec" and self.security == "open":
                what = 'datagrams are sealed, and agents have no keys with security = "open"'
                mend = 'use security = "signed", or transport = "tcp"'
                raise wrong(f"{at}.transport", what, mend)
            readable = self.security != "sealed" and not self.links.allow_plaintext
            if transport == "direct" and readable:
                what = f"frames go between agents readable with security = {self.security!r}"
                mend = 'use security = "sealed", or set links.allow_plaintext = true'
                raise wrong(f"{at}.transport", what, mend)

    def _nothing_is_taken_out_of_what_is_proven(self) -> None:
        rules = [neighbour.rules(self.rules.deny) for neighbour in self.neighbours]
        stopping = self.rules.deny or not all(rule.stops_nothing for rule in rules)
        if self.security == "proven" and stopping:
            what = "rules of links and rules.deny take publications out of frames, "
            what += "and what is left is not what its origin signed"
            raise wrong(
                "security", what, 'use "signed", or rules at the edge: import, export, keep'
            )

    def uses(self, transport: str) -> bool:
        """Whether any link is configured for ``transport``."""
        return transport in {
            self.links.transport,
            *(neighbour.transport for neighbour in self.neighbours),
        }

    def transport_to(self, neighbour: BrokerId) -> Transport:
        """The configured transport to a neighbour, used if its agent has it, too."""
        named = {entry.id: entry.transport for entry in self.neighbours if entry.transport}
        return named.get(neighbour, self.links.transport)

    def require(self, name: str) -> None:
        """Raise ``ConfigError`` about the file ``name`` when keys or a library are missing."""
        if self.security != "open":
            self._require_keys(name)
            for leaf in self.leaves[:1]:
                self.for_leaf(leaf)._require_keys(f"{name}: [hub] is as [keys], for leaves")
        if self.uses("udp-fec"):
            require_codec(name)
        require_exporter(self.opentelemetry, name)

    def _require_keys(self, name: str) -> None:
        if not self.keys.whole:
            raise unusable(
                f"{name}: security is {self.security!r}, and [keys] lacks agent_file or "
                'federation_files: make them with federator keys, or write security = "open" '
                "to believe whoever may publish on the brokers"
            )
        own = self.keys.agent_keys()
        if (own.federation, own.id) != (self.key_federation, self.broker.id):
            what = f"{self.keys.agent_file} is of broker {own.id} in {own.federation!r}"
            ours = f"this is broker {self.broker.id} in {self.key_federation!r}"
            raise unusable(f"{name}: keys.agent_file: {what}, {ours}: name its own")
        self.keys.federation_keys(self.key_federation)
        named, kept = self.keys.revocations_file, self.state_dir / REVOCATIONS_KEPT
        if named is not None and named.resolve() == kept.resolve():
            what = f"{named} is where the agent writes what it has heard"
            raise unusable(f"{name}: keys.revocations_file: {what}: name another file")
        self.keys.revocations()

    @property
    def finds_hubs(self) -> bool:
        """Whether this is a leaf that takes the best two of the hubs it names."""
        return self.role == "leaf" and self.topology.mode == "auto"

    @property
    def hubs(self) -> tuple[BrokerId, ...]:
        """The hubs of a leaf that has one in reserve, the preferred one first."""
        reserve = self.role == "leaf" and len(self.neighbours) > 1
        named = (neighbour.id for neighbour in self.neighbours if reserve)
        return tuple(BrokerId(id) for id in named if id is not None)

    @property
    def minds_broker(self) -> bool:
        """Whether this agent, and not another one on the same broker, monitors the broker."""
        return True

    @property
    def members(self) -> frozenset[BrokerId] | None:
        """The only brokers allowed in this federation; ``None``: any."""
        return None

    @property
    def key_federation(self) -> str:
        """The federation named in certificates: one for all leaves, which have separate
        federations."""
        return key_federation(self.federation)

    def for_leaf(self, leaf: LeafSettings) -> "PortSettings":
        """The settings of the agent that serves ``leaf``: a federation of these two brokers."""
        neighbours = () if leaf.url is None else (NeighbourSettings(url=leaf.url, id=leaf.id),)
        # Filters sent to the leaf are in the same table, and must leave room for those it wants.
        filters_max = self.hub.leaf_filters_max + self.hub.announced_max
        gap_ms = min(self.hub.leaf_ann_gap_ms, self.mesh.core_ann_interval_ms - 1)
        return PortSettings(
            leaf=leaf,
            federation=federation_of_leaf(self.federation, leaf.id),
            state_dir=self.state_dir / "leaves" / str(leaf.id),
            security=self.security,
            broker=self.broker,
            neighbours=neighbours,
            links=replace(
                self.links, dial_back=False, outboxes=(leaf.id,), dial="both", transport="tcp"
            ),
            mesh=replace(self.mesh, filters_max=filters_max, core_ann_gap_ms=gap_ms),
            routing=RoutingSettings(strategy="shortest-path"),
            custody=self.custody,
            data=self.data,
            discovery=DiscoverySettings(log_topics=False, new_regular_topic=False, widen=False),
            share=ShareSettings(scope="broker"),
            loops=LoopSettings(watch="never"),
            retained=self.retained,
            failover=AgentFailoverSettings(enabled=False),
            steer=replace(self.steer, follow=False),
            keys=self.hub.keys,
            http=replace(self.http, enabled=False),
            log=self.log,
        )

    def connections(self) -> list[tuple[str, BrokerAddress]]:
        """Every broker named here with its key: ``broker``, ``neighbours.0``, ..."""
        neighbours = [(f"neighbours.{i}", n) for i, n in enumerate(self.neighbours)]
        return [("broker", self.broker), *neighbours]

    def credential_holders(self) -> list[tuple[str, Credentials]]:
        """Every section that may name secrets, with its key."""
        return [*self.connections(), ("links", self.links)]

    def neighbour_connection(self, neighbour: NeighbourSettings) -> NeighbourSettings:
        """``neighbour`` with the credentials and the proxy of ``[links]`` where it has none."""
        named = neighbour.with_credentials_of(self.links)
        return named.with_proxy_of(self.links)

    def dialled_back(self, url: str) -> NeighbourSettings:
        """How to reach the broker that announced ``url``. Raises ``ValueError``: links there are
        not allowed."""
        address = Address.parse(url)
        if not self.topology.allows(address):
            raise ValueError(f"{url} is none of topology.hosts")
        if address.is_exposed and not self.links.allow_plaintext:
            raise ValueError(f"{url} is plaintext: links.allow_plaintext is false")
        return self.neighbour_connection(NeighbourSettings(url=url))

    def takes_outbox(self, neighbour: NeighbourSettings) -> bool:
        """Whether ``neighbour`` publishes for us on its own broker, because its agent cannot
        connect to ours."""
        return (neighbour.dial or self.links.dial) == "out"

    def seed(self, url: str) -> NeighbourSettings:
        """How to reach a broker of ``topology.seeds``, which the operator named."""
        return self.neighbour_connection(NeighbourSettings(url=url))

    def parameters(self) -> Parameters:
        """The timers and limits of the protocol core."""
        named = _same(Parameters, self.mesh) | _same(Parameters, self.links)
        if self.topology.mode == "auto":  # the topology manager decides
            named["dial_back"] = False
        named["outboxes"] = frozenset(self.links.outboxes)
        return Parameters(
            **named,
            transit=self.role != "leaf",
            serves_leaf=not self.minds_broker,
            link_cost=LinkCost(self.links.cost),
            strategy=Strategy(self.routing.strategy),
            strategies=self.routing.strategies,
        )

    def topology_parameters(
        self, addresses_before: tuple[tuple[BrokerId, str], ...]
    ) -> TopologyParameters | None:
        """How links are arranged; ``None``: by the operator."""
        topology = self.topology
        if topology.mode == "static":
            return None
        return TopologyParameters(
            **_same(TopologyParameters, topology),
            kept=frozenset(neighbour.url for neighbour in self.neighbours),
            addresses_before=addresses_before,
            forget_ms=Millis(1_000 * topology.forget_s),
            hidden=self.links.dial == "out",
        )

    def failover_parameters(self) -> FailoverParameters:
        """The timers and limits of the controller."""
        return FailoverParameters(
            **_same(FailoverParameters, self.failover),
            federation=self.federation,
            presence=PresenceParameters(**_same(PresenceParameters, self.failover)),
        )

    def ledger(self) -> LedgerParameters:
        """The limits of parcels for shared groups elsewhere."""
        return LedgerParameters(**_same(LedgerParameters, self.share))

    @property
    def broker_id(self) -> BrokerId:
        """This broker's id."""
        return BrokerId(self.broker.id)

    @property
    def groups_span_brokers(self) -> bool:
        """Whether groups span brokers; they do not support renames."""
        return self.share.scope == "federation" and not self.rules.rename

    def link_rules(self) -> tuple[dict[BrokerId, LinkRules], LinkRules]:
        """The rules of links by neighbour, and those of links to any other neighbour."""
        denied = self.rules.deny
        by_id = {
            BrokerId(neighbour.id): neighbour.rules(denied)
            for neighbour in self.neighbours
            if neighbour.id is not None
        }
        return by_id, LinkRules(deny=denied)

    def notices(self) -> tuple[Notice, ...]:
        """Warnings at start: credentials that are sent in clear."""
        neighbours = enumerate(map(self.neighbour_connection, self.neighbours))
        named = ((f"neighbours.{index}", neighbour) for index, neighbour in neighbours)
        return in_clear([("broker", self.broker), *named]) + proxies_in_clear(self.proxy_holders())

    def proxy_holders(self) -> list[tuple[str, ProxySettings]]:
        """Every section that may name a proxy, with its key."""
        neighbours = [(f"neighbours.{i}", neighbour) for i, neighbour in enumerate(self.neighbours)]
        return [*neighbours, ("links", self.links)]


class PortSettings(Settings):
    """The settings of a hub's agent for one leaf; see ``for_leaf``."""

    leaf: LeafSettings

    def __post_init__(self) -> None:
        """Check nothing: the settings it was made from were checked."""

    @property
    def minds_broker(self) -> bool:
        """False: the hub's own agent does."""
        return False

    @property
    def members(self) -> frozenset[BrokerId]:
        """The leaf and this broker."""
        return frozenset((BrokerId(self.leaf.id), self.broker_id))

    def link_rules(self) -> tuple[dict[BrokerId, LinkRules], LinkRules]:
        return {}, self.leaf.rules()
