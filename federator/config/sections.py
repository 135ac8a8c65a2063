"""The sections of the configuration that are numbers and choices: timers, bounds, switches.

What stands below a key becomes ``docs/configuration.md``. Units are last in a key's name: ``_ms``,
``_bytes``.
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
    """What links cost whose cost is not given: "hops": 1; "delay": the milliseconds there and back,
    smoothed; a change of less than a quarter, or 2 ms, moves nothing."""
    transport: Transport = "tcp"
    """How frames reach neighbours: "tcp": by their brokers; "direct": straight from agent to agent,
    past their brokers, to neighbours that have this too; see [direct]. "udp-fec": from agent to
    agent in datagrams with repair packets, to neighbours that have this too; for links that lose
    packets. Not in an open federation. See [udp]."""
    dial_back: Switch = True
    """Connect to brokers that connect to ours without being listed."""
    dial: Dial = "both"
    """Who dials whom: "both": we connect to neighbours' brokers, and their agents to ours; "out":
    we connect to theirs, and hear them over the same connections. For a broker behind NAT or a
    firewall, which nobody can connect to. A neighbour may have its own."""
    outboxes: Annotated[tuple[BrokerNumber, ...], MaxLen(NEIGHBOURS_MAX)] = ()
    """Where dial_back = false: ids of brokers with dial = "out" that may link with ours."""
    notifications: Switch = True
    """Say on neighbours' brokers whether the link is up, retained, as Mosquitto's bridges do: 1 or
    0 on $SYS/broker/connection/federator-ID/state, ID being ours."""
    send_queue_bytes_max: Annotated[WholeNumber, Interval(ge=65_536, le=2**32)] = 16_777_216
    """Per connection, what may wait to be sent; beyond it frames are dropped and counted."""
    outbox_bytes_max: Annotated[WholeNumber, Interval(ge=65_536, le=2**30)] = WINDOW_BYTES
    """Of data that a neighbour with dial = "out" has not taken yet, what our broker is given at a
    time and keeps; its throughput is at most this in a round trip. The rest waits with us."""
    return_after_s: Annotated[WholeNumber, Interval(ge=0, le=86_400)] = 600
    """Of a leaf with two hubs: how long the first one must be back before the leaf returns to it;
    0: it stays where it is until it is told to reload."""
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
    """How much more than the least way to the core a further parent's way may cost: 100 is twice as
    much. 0: only ways of least cost. Nothing where all links cost the same."""
    core: Literal["smallest-id", "placed"] = "smallest-id"
    """Who is preferred as core after broker.priority: "placed" takes our priority from a
    steerer's plan while one holds that says it."""
    core_check_ms: Span = 10_000
    """With core = "placed": between looks at the plan."""
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
    the federation. It hands what it publishes to all neighbours for as long, and once more."""
    improvement_hold_ms: Annotated[WholeNumber, Interval(ge=0, le=SPAN_MS_MAX)] = 30
    """How long a relay waits for the cheaper copy it had last time, when all its nearest parents
    have spoken."""
    parent_settle_ms: Annotated[WholeNumber, Interval(ge=0, le=SPAN_MS_MAX)] = 4_000
    """How long a parent stays one while its copy of a newer number travels; less than
    `core_ann_interval_ms`."""
    handover_ms: Annotated[WholeNumber, Interval(ge=0, le=SPAN_MS_MAX)] = 1_000
    """How long the mesh of a deposed core still carries data."""
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
    """Filters that are routed in another way."""

    filter: TopicFilter
    """What it contains is routed by this strategy."""
    strategy: _Strategy
    """As routing.strategy."""


class RoutingSettings(Section):
    """How publications find their way to what clients of this broker want. Agents may differ."""

    strategy: _Strategy = "mesh"
    """"mesh": the brokers that want a filter share a mesh around one core; "shortest-path": each
    gets publications over the shortest path from wherever they are published: less delay, no
    redundancy, more state."""
    filters: Annotated[tuple[RoutedFilterSettings, ...], MaxLen(ROUTED_FILTERS_MAX)] = ()
    """Other strategies: `[{filter = "alarms/#", strategy = "shortest-path"}]`; the first that
    contains a client's filter counts."""

    @property
    def strategies(self) -> tuple[tuple[str, Strategy], ...]:
        """The filters with strategies of their own."""
        return tuple((each.filter, Strategy(each.strategy)) for each in self.filters)

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [each.filter for each in self.filters]
        for at, later in enumerate(names):
            for earlier in names[:at]:
                if contains(earlier, later):
                    what = f"routing.filters[{at}].filter = {later!r} never counts, for "
                    what += f"{earlier!r} before it contains it"
                    raise wrong(f"filters.{at}.filter", what, "put it first, or remove it")


class CustodySettings(Section):
    """What is kept of QoS 1 and 2 publications, so that nothing is lost."""

    keep_s: Annotated[WholeNumber, Interval(ge=1, le=7 * 86_400)] = 1_800
    """Seconds for which what our clients published is kept, and for which brokers out of reach can
    still get it; also how long our broker keeps our session."""
    bytes_max: Annotated[WholeNumber, Interval(ge=1_048_576, le=2**40)] = 268_435_456
    """Bytes of it kept on disk; the oldest goes first."""
    fsync: Literal["never", "interval", "always"] = "never"
    """When it must be on the disk itself: a crash of the agent loses nothing in any case, one of
    the machine up to the last fsync."""


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
    """Origins remembered per neighbour; the one unheard for longest is forgotten."""
    topic_cache_max: Annotated[WholeNumber, Interval(ge=1, le=2**24)] = 65_536
    """Topics whose route is cached."""
    busy_poll_us: Annotated[WholeNumber, Interval(ge=0, le=1_000_000)] = 0
    """After data, poll for so long instead of sleeping: less delay, for a processor that is kept
    busy while data flows. 0: never."""


class DiscoverySettings(Section):
    """How this agent learns what its broker's clients subscribe to."""

    log_topics: Switch = True
    """Read the broker's log topics (Mosquitto: log_dest topic)."""
    filters: TopicFilters = ()
    """Filters to ask for whatever clients do."""
    new_regular_topic: Switch = True
    """Clients may announce filters on $fed/<federation>/."""
    match_all: Literal["local", "federate"] = "local"
    """What # and +/# of local clients ask for: "local" serves them from this broker only,
    "federate" pulls everything."""
    widen: Switch = True
    """Ask for more than needed while the learned table cannot be trusted."""
    widen_to: Annotated[TopicFilters, MinLen(1)] = ("#",)
    """What is asked for then: # is everything. On a narrow link name what its clients must not
    miss: nothing else reaches a client that nobody knows of."""
    registration_ttl_ms: Span = 3_600_000
    """How long a filter registered on new_regular_topic is asked for."""
    unlogged_subscriptions: Annotated[WholeNumber, Interval(ge=0, le=2**31)] = 0
    """Subscriptions of bridges configured in the broker itself: it counts but never logs them."""


class ShareSettings(Section):
    """Shared subscriptions, ``$share/<group>/<filter>``, with members on several brokers."""

    scope: Literal["federation", "broker"] = "federation"
    """Who shares: "federation" gives each publication to one member of the group anywhere, "broker"
    to one member on each broker."""
    groups_max: Annotated[WholeNumber, Interval(ge=1, le=10_000)] = 256
    """Groups with members on this broker that are shared with other brokers; each costs every
    broker work. What is beyond is shared on each broker for itself."""
    client_groups_max: Annotated[WholeNumber, Interval(ge=1, le=10_000)] = 32
    """The same for the memberships of one client."""
    stand_ins_max: Annotated[WholeNumber, Interval(ge=0, le=64)] = 8
    """Connections by which the agent takes what is published here for members elsewhere out of a
    group: as many as members elsewhere give everybody the same share, 0 leaves publications with
    the members of the broker where they were published."""
    bytes_max: Annotated[WholeNumber, Interval(ge=65_536, le=2**40)] = 67_108_864
    """Publications on their way to members elsewhere that are kept in memory; beyond it they are
    dropped and counted."""
    keep_ms: Span = 300_000
    """How long a publication is kept while no broker with members confirms it."""
    linger_ms: Span = 2_000
    """What a broker confirmed for so long before it was last heard is given to other members when
    it is gone, for it may not have reached its own: more than its members need to take what waits
    for them."""


class RetainedSettings(Section):
    """Retained messages: a new subscriber gets the value wherever it was set."""

    enabled: Switch = True
    """Whether to fetch, give and order values; otherwise only live ones travel."""
    topics_max: Annotated[WholeNumber, Interval(ge=1, le=2**24)] = 100_000
    """Topics whose version is known, deleted ones included; each broker has a share of them, and
    others take what comes."""
    tombstone_keep_s: Annotated[WholeNumber, Interval(ge=60, le=2**31)] = 604_800
    """How long a delete is remembered: longer than brokers are apart from each other, or what was
    deleted meanwhile comes back."""
    values_per_s: Annotated[WholeNumber, Interval(ge=1, le=1_000_000)] = 4_000
    """Values fetched from others at most, so that live traffic is not delayed."""
    resync_s: Annotated[WholeNumber, Interval(ge=1, le=86_400)] = 60
    """About so often 64 filters are compared without another reason, in turns."""


class AgentFailoverSettings(Section):
    """Who steps in when a broker dies: the controller, the guide for clients, prepared sessions."""

    enabled: Switch = True
    """Take part: announce this broker, be the controller where its rank is the smallest, keep the
    guide that gateways read."""
    report_sessions: Switch = True
    """Tell all agents which clients publish and subscribe what here. Without it substitutes are
    chosen by load and distance, and no sessions are prepared."""
    advertise: Url | None = None
    """Where clients and gateways reach this broker; broker.advertise when absent."""
    prepare_sessions: Switch = False
    """As a substitute, prepare the persistent sessions of a dead broker's clients on this one, so
    that messages wait for them. The agent connects with their client ids: its user needs the right
    to."""
    repeat: Switch = True
    """With prepared sessions: publish here again what was published elsewhere between the broker's
    death and its clients' sessions here. Others who subscribe the same may get it twice; without it
    moved clients may miss it."""
    session_keep_s: Annotated[WholeNumber, Interval(ge=1, le=2**31)] = 3_600
    """How long a prepared session waits for its client."""
    gone_after_ms: Span = 1_000
    """A broker that nobody hears announced for so long counts as gone."""
    orphan_after_ms: Span = 15_000
    """The same, while only its agent is silent and the broker answers neighbours."""
    office_ms: Span = 1_000
    """How long a new controller watches before it decides anything."""
    report_interval_ms: Span = 1_000
    """Between looks at our own load and clients."""
    rows_max: Annotated[WholeNumber, Interval(ge=0, le=1_000_000)] = 10_000
    """Rows of the session flow table told, and held of each other broker."""


class MetricsSettings(Section):
    """The metrics stream: what the agent tells of itself for reports ([metrics.md](metrics.md))."""

    enabled: Switch = False
    """Record it. Off by default: a gateway's flash and its broker's clients get nothing to carry
    until somebody wants reports. `/metrics` is there either way."""
    flush_ms: Annotated[WholeNumber, Interval(ge=100, le=60_000)] = 1_000
    """Between two batches of records."""
    spool_bytes_max: Annotated[WholeNumber, Interval(ge=1_048_576, le=2**40)] = 268_435_456
    """Bytes kept in `state_dir/metrics`; the oldest goes first, and is counted."""
    segment_bytes_max: Annotated[WholeNumber, Interval(ge=65_536, le=67_108_864)] = 8_388_608
    """A file is finished when it is so large; at most half of `spool_bytes_max`."""
    segment_age_ms: Annotated[WholeNumber, Interval(ge=100, le=3_600_000)] = 10_000
    """A file is finished when it is so old."""
    live: Switch = True
    """Publish each batch under `$fed/<federation>/metrics/` on our broker, too."""
    sample: Annotated[WholeNumber, Interval(ge=0, le=1_000_000)] = 100
    """One frame in so many is told hop by hop; 0: none. All agents of a federation must use the
    same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if 2 * self.segment_bytes_max > self.spool_bytes_max:
            pair = ("segment_bytes_max", "more than half of", "spool_bytes_max")
            raise self.clash(*pair, "lower it, or raise spool_bytes_max")


class SteerSettings(Section):
    """What this agent tells whoever steers the federation, and does for it."""

    follow: Switch = True
    """Send flows along the trees of a steerer's plan while it holds, and tell our load meanwhile;
    false: go the ordinary way, whatever anybody plans."""
    flows_max: Annotated[WholeNumber, Interval(ge=0, le=FLOWS_MAX)] = 256
    """Flows of this broker's clients that are measured and told, the heaviest; 0: none is."""


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
    """Listen on an address other machines reach. Nobody is asked who they are."""
    names: Annotated[tuple[HostName, ...], MaxLen(HOST_NAMES_MAX)] = ()
    """Names with a dot under which pages may be asked for, beside our host's: a browser asks under
    any name that leads to us.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.allow_remote and not is_loopback(self.host):
            what = f"http.host = {self.host[:60]!r} is not loopback"
            raise wrong("host", what, "use 127.0.0.1, or set http.allow_remote = true")


class HomeAssistantSettings(Section):
    """Home Assistant's MQTT discovery ([home-assistant.md](how-to/home-assistant.md))."""

    discovery: Switch = False
    """Tell Home Assistant of this broker and its links, as devices. Off again, they are removed
    at the next start."""
    prefix: Name = "homeassistant"
    """Home Assistant's discovery prefix."""


class LogSettings(Section):
    """Our own log, on standard error."""

    format: Literal["console", "json"] = "console"
    """Form of a line."""
    level: Annotated[Literal["debug", "info", "warning", "error"], Takes.RELOAD] = "info"
    """Least level that is written."""
