"""The sections of the configuration with numbers and choices: timers, limits, switches.

The text below a key is printed in ``docs/configuration.md``. A key's name ends with its unit:
``_ms``, ``_bytes``.
"""

from typing import Annotated, Literal

from annotated_types import Interval, MaxLen, MinLen, MultipleOf

from federator.config.brokers import Credentials, Dial, ProxySettings, Url, is_loopback
from federator.config.section import (
    STRICT,
    BrokerNumber,
    Core,
    Name,
    Section,
    Switch,
    Takes,
    WholeNumber,
    wrong,
)
from federator.config.topics import TopicFilter, TopicFilters
from federator.config.transports import Transport
from federator.protocol.filters import contains
from federator.protocol.links.outbox import WINDOW_BYTES
from federator.protocol.messages.control import NEIGHBOURS_MAX
from federator.protocol.messages.steering import FLOWS_MAX
from federator.protocol.parameters import Strategy

SPAN_MS_MAX = 86_400_000
ROUTED_FILTERS_MAX = 256
HOST_NAMES_MAX = 64

Span = Annotated[int, STRICT, Interval(ge=1, le=SPAN_MS_MAX)]
"""Milliseconds, a day at most."""

HostName = Annotated[str, Core(pattern=r"^[A-Za-z0-9_.-]{1,253}$")]


class LinkSettings(Credentials, ProxySettings):
    """Links to neighbours. Credentials here hold for neighbours that name none of their own,
    and for those that are dialled back.
    """

    hello_interval_ms: Span = 1_000
    """Between hellos on each link."""
    hello_timeout_ms: Span = 3_000
    """Silence after which a link is down; more than the interval."""
    reconnect_min_ms: Span = 100
    """First wait before reconnecting."""
    reconnect_max_ms: Span = 5_000
    """Longest wait; waits double and are jittered in between."""
    cost: Annotated[Literal["hops", "delay"], Takes.RELOAD] = "hops"
    """The cost of links without a configured cost: "hops": 1; "delay": the milliseconds there and
    back, smoothed; a change of less than a quarter, or 2 ms, moves nothing."""
    transport: Transport = "tcp"
    """How frames reach neighbours: "tcp": by their brokers; "direct": straight from agent to agent,
    past their brokers, to neighbours that have this too; see [direct]. "udp-fec": from agent to
    agent in datagrams with repair packets, to neighbours that have this too; for links that lose
    packets. Not in an open federation. See [udp]."""
    dial_back: Switch = True
    """Connect to brokers that connect to ours without being listed."""
    dial: Dial = "both"
    """Which end connects: "both": we connect to neighbours' brokers, and their agents to ours;
    "out": only we connect, and receive over the same connections, for a broker behind NAT or a
    firewall that accepts no connections. A neighbour may have its own."""
    outboxes: Annotated[tuple[BrokerNumber, ...], MaxLen(NEIGHBOURS_MAX)] = ()
    """Where dial_back = false: ids of brokers with dial = "out" that may link with ours."""
    notifications: Switch = True
    """Publish on neighbours' brokers whether the link is up, retained, as Mosquitto's bridges do: 1
    or 0 on $SYS/broker/connection/federator-ID/state, with our ID."""
    send_queue_bytes_max: Annotated[WholeNumber, Interval(ge=65_536, le=2**32)] = 16_777_216
    """The send queue of each connection; frames beyond it are dropped and counted."""
    outbox_bytes_max: Annotated[WholeNumber, Interval(ge=65_536, le=2**30)] = WINDOW_BYTES
    """The data for a neighbour with dial = "out" that our broker holds until the neighbour fetches
    it; throughput is at most this per round trip. The rest waits in the agent."""
    return_after_s: Annotated[WholeNumber, Interval(ge=0, le=86_400)] = 600
    """For a leaf with two hubs: how long the first one must be back before the leaf returns to it;
    0: it stays at the other hub until a reload."""
    allow_plaintext: Switch = True
    """Allow mqtt:// to hosts other than this one. A warning is logged when credentials would travel
    in clear."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hello_timeout_ms <= self.hello_interval_ms:
            pair = ("hello_timeout_ms", "not more than", "hello_interval_ms")
            raise self.clash(*pair, "use about three intervals")
        if self.reconnect_max_ms < self.reconnect_min_ms:
            raise self.clash("reconnect_max_ms", "less than", "reconnect_min_ms", "raise it")


class MeshSettings(Section):
    """The mesh protocol. All agents of a federation should use the same."""

    redundancy: Annotated[WholeNumber, Interval(ge=1, le=16)] = 2
    """Parents kept per core."""
    parent_slack_percent: Annotated[WholeNumber, Interval(ge=0, le=1_000)] = 100
    """How much more than the cheapest path to the core a further parent's path may cost: 100 is
    twice as much. 0: only paths of least cost. No effect where all links cost the same."""
    core: Literal["smallest-id", "placed"] = "smallest-id"
    """Which broker is preferred as core after broker.priority: with "placed" our priority comes
    from a steerer's plan while a valid one contains it."""
    core_check_ms: Span = 10_000
    """With core = "placed": the interval between checks of the plan."""
    core_hold_ms: Annotated[WholeNumber, Interval(ge=0, le=SPAN_MS_MAX)] = 60_000
    """Least time between two changes of our priority."""
    core_ann_interval_ms: Span = 5_000
    """Between a core's refreshing announcements."""
    core_ann_gap_ms: Annotated[WholeNumber, Interval(ge=0, le=SPAN_MS_MAX)] = 20
    """Least time between two announcements of one core."""
    core_lifetime_intervals: Annotated[WholeNumber, Interval(ge=1, le=1_000)] = 3
    """Intervals after which a silent core is forgotten."""
    solicit_timeout_ms: Span = 500
    """How long a broker without a parent waits for the core's answer; more than a round trip across
    the federation. Meanwhile, and for as long again, it forwards to all neighbours."""
    improvement_hold_ms: Annotated[WholeNumber, Interval(ge=0, le=SPAN_MS_MAX)] = 30
    """How long a relay waits for the cheaper copy that it had last time, when all its nearest
    parents have sent theirs."""
    parent_settle_ms: Annotated[WholeNumber, Interval(ge=0, le=SPAN_MS_MAX)] = 4_000
    """How long a parent stays one while its copy of a newer number travels; less than
    `core_ann_interval_ms`."""
    handover_ms: Annotated[WholeNumber, Interval(ge=0, le=SPAN_MS_MAX)] = 1_000
    """How long the mesh of a replaced core still carries data."""
    list_request_gap_ms: Span = 250
    """Least time between two requests for the same list."""
    filters_max: Annotated[WholeNumber, Interval(ge=1, le=2**31)] = 1_000_000
    """Filters one agent holds; more are refused."""
    cores_max: Annotated[WholeNumber, Interval(ge=1, le=2**31)] = 65_536
    """Cores one agent holds; more are refused."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.core_ann_gap_ms >= self.core_ann_interval_ms:
            raise self.clash("core_ann_gap_ms", "not less than", "core_ann_interval_ms", "lower it")


_Strategy = Literal["mesh", "shortest-path"]


class RoutedFilterSettings(Section):
    """Filters with another routing strategy."""

    filter: TopicFilter
    """Filters that this one contains are routed by this strategy."""
    strategy: _Strategy
    """The strategy, as in routing.strategy."""


class RoutingSettings(Section):
    """How publications are routed to subscribers on this broker. Agents may differ."""

    strategy: _Strategy = "mesh"
    """"mesh": the brokers that want a filter share a mesh around one core; "shortest-path": each
    receives publications over the shortest path from their origin: less delay, no redundancy, more
    state."""
    filters: Annotated[tuple[RoutedFilterSettings, ...], MaxLen(ROUTED_FILTERS_MAX)] = ()
    """Other strategies: `[{filter = "alarms/#", strategy = "shortest-path"}]`; the first that
    contains a client's filter counts."""

    @property
    def strategies(self) -> tuple[tuple[str, Strategy], ...]:
        """The filters with strategies of their own."""
        return tuple((entry.filter, Strategy(entry.strategy)) for entry in self.filters)

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [entry.filter for entry in self.filters]
        for at, later in enumerate(names):
            for earlier in names[:at]:
                if contains(earlier, later):
                    what = f"routing.filters[{at}].filter = {later!r} never counts, for "
                    what += f"{earlier!r} before it contains it"
                    raise wrong(f"filters.{at}.filter", what, "put it first, or remove it")


class CustodySettings(Section):
    """The custody log of QoS 1 and 2 publications, so that nothing is lost."""

    keep_s: Annotated[WholeNumber, Interval(ge=1, le=7 * 86_400)] = 1_800
    """How long our clients' publications are kept, so that brokers that were unreachable can still
    get them; also how long our broker keeps our session."""
    bytes_max: Annotated[WholeNumber, Interval(ge=1_048_576, le=2**40)] = 268_435_456
    """Bytes kept on disk; the oldest publications are dropped first."""
    fsync: Literal["never", "interval", "always"] = "never"
    """When to call fsync: a crash of the agent loses nothing in any case, a crash of the machine
    loses what came after the last fsync."""


class DataSettings(Section):
    """The data path."""

    frame_bytes_max: Annotated[WholeNumber, Interval(ge=1_024, le=1_900_000)] = 262_144
    """Largest frame; a larger publication travels alone. Stays under the 2,000,000 bytes of
    max_packet_size that Mosquitto 2.1 allows by default."""
    hop_limit: Annotated[WholeNumber, Interval(ge=1, le=255)] = 64
    """Hops after which a frame is dropped."""
    duplicate_window_bits: Annotated[WholeNumber, Interval(ge=1_024, le=2**24), MultipleOf(8)] = (
        65_536
    )
    """Frames remembered per origin and epoch; a multiple of 8."""
    origins_max: Annotated[WholeNumber, Interval(ge=1, le=2**20)] = 4_096
    """Origins remembered per neighbour; the one unused for longest is forgotten."""
    topic_cache_max: Annotated[WholeNumber, Interval(ge=1, le=2**24)] = 65_536
    """Cached routes of topics."""
    busy_poll_us: Annotated[WholeNumber, Interval(ge=0, le=1_000_000)] = 0
    """After data, poll for so long instead of sleeping: less delay, for a processor that is kept
    busy while data flows. 0: never."""


class DiscoverySettings(Section):
    """How this agent learns what its broker's clients subscribe to."""

    log_topics: Switch = True
    """Read the broker's log topics (Mosquitto: log_dest topic)."""
    filters: TopicFilters = ()
    """Filters to subscribe to in any case."""
    new_regular_topic: Switch = True
    """Clients may announce filters on $fed/<federation>/."""
    match_all: Literal["local", "federate"] = "local"
    """The effect of # and +/# of local clients: "local" serves them from this broker only,
    "federate" subscribes to everything."""
    widen: Switch = True
    """Subscribe to more than needed while the learned table is uncertain."""
    widen_to: Annotated[TopicFilters, MinLen(1)] = ("#",)
    """The filters for that: # is everything. On a narrow link name the topics that clients must not
    miss: unknown clients receive no others."""
    registration_ttl_ms: Span = 3_600_000
    """How long a filter registered on new_regular_topic stays wanted."""
    unlogged_subscriptions: Annotated[WholeNumber, Interval(ge=0, le=2**31)] = 0
    """Subscriptions of bridges configured in the broker itself: it counts but never logs them."""


class ShareSettings(Section):
    """Shared subscriptions, ``$share/<group>/<filter>``, with members on several brokers."""

    scope: Literal["federation", "broker"] = "federation"
    """The scope of a group: "federation" delivers each publication to one member of the group
    anywhere, "broker" to one member on each broker."""
    groups_max: Annotated[WholeNumber, Interval(ge=1, le=10_000)] = 256
    """Groups with members on this broker that are shared with other brokers; each costs every
    broker work. Groups beyond it are shared on each broker separately."""
    client_groups_max: Annotated[WholeNumber, Interval(ge=1, le=10_000)] = 32
    """The same for the memberships of one client."""
    stand_ins_max: Annotated[WholeNumber, Interval(ge=0, le=64)] = 8
    """Connections by which the agent joins a group for members elsewhere: with as many as members
    elsewhere all members get the same share, with 0 publications stay with the members of the
    broker where they were published."""
    bytes_max: Annotated[WholeNumber, Interval(ge=65_536, le=2**40)] = 67_108_864
    """Publications on their way to members elsewhere that are kept in memory; beyond it they are
    dropped and counted."""
    keep_ms: Span = 300_000
    """How long a publication is kept until a broker with members confirms it."""
    linger_ms: Span = 2_000
    """When a broker is gone, publications that it confirmed within this time before its last
    message are sent to other members, for they may not have reached its own: more than members need
    to fetch their queues."""


class RetainedSettings(Section):
    """Retained messages: a new subscriber gets the value from whichever broker it was set on."""

    enabled: Switch = True
    """Whether to fetch, send and order values; otherwise only live ones are forwarded."""
    topics_max: Annotated[WholeNumber, Interval(ge=1, le=2**24)] = 100_000
    """Topics with a known version, deleted ones included; each broker has a share of them. Values
    of further topics are accepted as they come."""
    tombstone_keep_s: Annotated[WholeNumber, Interval(ge=60, le=2**31)] = 604_800
    """How long a delete is remembered: longer than brokers are separated, otherwise values deleted
    meanwhile come back."""
    values_per_s: Annotated[WholeNumber, Interval(ge=1, le=1_000_000)] = 4_000
    """Values fetched from others at most, so that live traffic is not delayed."""
    resync_s: Annotated[WholeNumber, Interval(ge=1, le=86_400)] = 60
    """Interval of the periodic comparison, of 64 filters at a time."""


class AgentFailoverSettings(Section):
    """Failover when a broker dies: the controller, the guide for clients, prepared sessions."""

    enabled: Switch = True
    """Take part: announce this broker, be the controller where its rank is the smallest, keep the
    guide that gateways read."""
    report_sessions: Switch = True
    """Report to all agents which clients publish and subscribe what here. Without it substitutes
    are chosen by load and distance, and no sessions are prepared."""
    advertise: Url | None = None
    """Where clients and gateways reach this broker; broker.advertise when absent."""
    prepare_sessions: Switch = False
    """As a substitute, prepare the persistent sessions of a dead broker's clients on this one, so
    that messages are queued for them. The agent connects with their client ids: its user needs that
    permission."""
    repeat: Switch = True
    """With prepared sessions: publish here again what was published elsewhere between the broker's
    death and its clients' sessions here. Other subscribers may get it twice; without it moved
    clients may miss it."""
    session_keep_s: Annotated[WholeNumber, Interval(ge=1, le=2**31)] = 3_600
    """How long a prepared session waits for its client."""
    gone_after_ms: Span = 1_000
    """A broker without an announcement for so long counts as gone."""
    orphan_after_ms: Span = 15_000
    """The same, while only its agent is silent and the broker answers neighbours."""
    office_ms: Span = 1_000
    """How long a new controller observes before its first decision."""
    report_interval_ms: Span = 1_000
    """Interval between checks of our own load and clients."""
    rows_max: Annotated[WholeNumber, Interval(ge=0, le=1_000_000)] = 10_000
    """Rows of the session flow table that we send, and that we hold of each other broker."""


class MetricsSettings(Section):
    """The metrics stream: the agent's records for reports ([metrics.md](metrics.md))."""

    enabled: Switch = False
    """Record it. Off by default, to spare the flash of small machines and the broker's clients.
    `/metrics` works either way."""
    flush_ms: Annotated[WholeNumber, Interval(ge=100, le=60_000)] = 1_000
    """Between two batches of records."""
    spool_bytes_max: Annotated[WholeNumber, Interval(ge=1_048_576, le=2**40)] = 268_435_456
    """Bytes kept in `state_dir/metrics`; the oldest are dropped first, and counted."""
    segment_bytes_max: Annotated[WholeNumber, Interval(ge=65_536, le=67_108_864)] = 8_388_608
    """A file is finished when it is so large; at most half of `spool_bytes_max`."""
    segment_age_ms: Annotated[WholeNumber, Interval(ge=100, le=3_600_000)] = 10_000
    """A file is finished when it is so old."""
    live: Switch = True
    """Publish each batch under `$fed/<federation>/metrics/` on our broker, too."""
    sample: Annotated[WholeNumber, Interval(ge=0, le=1_000_000)] = 100
    """One frame in so many is recorded hop by hop; 0: none. All agents of a federation must use the
    same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if 2 * self.segment_bytes_max > self.spool_bytes_max:
            pair = ("segment_bytes_max", "more than half of", "spool_bytes_max")
            raise self.clash(*pair, "lower it, or raise spool_bytes_max")


class SteerSettings(Section):
    """What this agent reports to the steerer of the federation, and whether it follows plans."""

    follow: Switch = True
    """Send flows along the trees of a steerer's valid plan, and report our load meanwhile; false:
    ignore plans."""
    flows_max: Annotated[WholeNumber, Interval(ge=0, le=FLOWS_MAX)] = 256
    """Flows of this broker's clients that are measured and reported, the heaviest; 0: none."""


class HttpSettings(Section):
    """The listener of /metrics, /healthz, /readyz, /status, /routes, /explain, /controller and
    /topology.
    """

    enabled: Switch = True
    """Whether to listen."""
    host: Annotated[str, MinLen(1)] = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[WholeNumber, Interval(ge=0, le=65_535)] = 9883
    """0 takes any free port and writes it to <state_dir>/http.port."""
    allow_remote: Switch = False
    """Listen on an address that other machines reach. Requests need no authentication."""
    names: Annotated[tuple[HostName, ...], MaxLen(HOST_NAMES_MAX)] = ()
    """Names with a dot that requests may use, besides our host's: a browser uses any name that
    resolves to us.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.allow_remote and not is_loopback(self.host):
            what = f"http.host = {self.host[:60]!r} is not loopback"
            raise wrong("host", what, "use 127.0.0.1, or set http.allow_remote = true")


class HomeAssistantSettings(Section):
    """Home Assistant's MQTT discovery ([home-assistant.md](how-to/home-assistant.md))."""

    discovery: Switch = False
    """Announce this broker and its links to Home Assistant, as devices. When set to false they are
    removed at the next start."""
    prefix: Name = "homeassistant"
    """Home Assistant's discovery prefix."""


class LogSettings(Section):
    """Our own log, on standard error."""

    format: Literal["console", "json"] = "console"
    """Form of a line."""
    level: Annotated[Literal["debug", "info", "warning", "error"], Takes.RELOAD] = "info"
    """The lowest level that is written."""
