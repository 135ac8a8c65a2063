"""The sections of the configuration that are numbers and choices: timers, bounds, switches.

Field descriptions become ``docs/configuration.md``. Units are last in a key's name: ``_ms``,
``_bytes``.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, Strict, model_validator

from federator.config.brokers import Credentials, Transport, Url
from federator.config.section import Section, Switch, WholeNumber, wrong
from federator.config.topics import CONFIGURED_FILTERS_MAX, TopicFilter
from federator.protocol.filters import contains
from federator.protocol.parameters import Strategy

SPAN_MS_MAX = 86_400_000
ROUTED_FILTERS_MAX = 256

_Span = Annotated[int, Strict(), Field(ge=1, le=SPAN_MS_MAX)]


class LinkSettings(Credentials):
    """Links to neighbours. Credentials here hold for neighbours that name none of their own,
    and for those that are dialled back.
    """

    hello_interval_ms: _Span = Field(default=1_000, description="Between hellos on each link.")
    hello_timeout_ms: _Span = Field(
        default=3_000, description="Silence after which a link is down; more than the interval."
    )
    reconnect_min_ms: _Span = Field(default=100, description="First wait before reconnecting.")
    reconnect_max_ms: _Span = Field(
        default=5_000, description="Longest wait; waits double and are jittered in between."
    )
    cost: Literal["hops", "delay"] = Field(
        default="hops",
        description='What links cost whose cost is not given: "hops": 1; "delay": the '
        "milliseconds there and back, smoothed; a change of less than a quarter, or 2 ms, moves "
        "nothing.",
    )
    transport: Transport = Field(
        default="tcp",
        description='How frames reach neighbours: "tcp": by their brokers; "udp-fec": from agent '
        "to agent in datagrams with repair packets, to neighbours that have this too; for links "
        "that lose packets. Not in an open federation. See [udp].",
    )
    dial_back: Switch = Field(
        default=True, description="Connect to brokers that connect to ours without being listed."
    )
    notifications: Switch = Field(
        default=True,
        description="Say on neighbours' brokers whether the link is up, retained, as Mosquitto's "
        "bridges do: 1 or 0 on $SYS/broker/connection/federator-ID/state, ID being ours.",
    )
    send_queue_bytes_max: WholeNumber = Field(
        default=16_777_216,
        ge=65_536,
        le=2**32,
        description="Per connection, what may wait to be sent; beyond it frames are dropped and "
        "counted.",
    )
    allow_plaintext: Switch = Field(
        default=True,
        description="Allow mqtt:// to hosts other than this one. A warning is logged when "
        "credentials would travel in clear.",
    )

    @model_validator(mode="after")
    def _spans_are_ordered(self) -> Self:
        if self.hello_timeout_ms <= self.hello_interval_ms:
            raise wrong(
                "hello_timeout_ms",
                f"hello_timeout_ms = {self.hello_timeout_ms} is not more than "
                f"hello_interval_ms = {self.hello_interval_ms}",
                "use about three intervals",
            )
        if self.reconnect_max_ms < self.reconnect_min_ms:
            raise wrong(
                "reconnect_max_ms",
                f"reconnect_max_ms = {self.reconnect_max_ms} is less than "
                f"reconnect_min_ms = {self.reconnect_min_ms}",
                "raise it",
            )
        return self


class MeshSettings(Section):
    """The mesh protocol. All agents of a federation should use the same."""

    redundancy: WholeNumber = Field(default=2, ge=1, le=16, description="Parents kept per core.")
    core: Literal["smallest-id", "placed"] = Field(
        default="smallest-id",
        description='Who is preferred as core after broker.priority: "placed" takes our priority '
        "from <state_dir>/core_priority.json while that is valid.",
    )
    core_check_ms: _Span = Field(
        default=10_000, description='With core = "placed": between looks at the file.'
    )
    core_hold_ms: WholeNumber = Field(
        default=60_000,
        ge=0,
        le=SPAN_MS_MAX,
        description="Least time between two changes of our priority.",
    )
    core_ann_interval_ms: _Span = Field(
        default=5_000, description="Between a core's refreshing announcements."
    )
    core_ann_gap_ms: WholeNumber = Field(
        default=20,
        ge=0,
        le=SPAN_MS_MAX,
        description="Least time between two announcements of one core.",
    )
    core_lifetime_intervals: WholeNumber = Field(
        default=3, ge=1, le=1_000, description="Intervals after which a silent core is forgotten."
    )
    solicit_timeout_ms: _Span = Field(
        default=500,
        description="How long a broker without a parent waits for the core's answer; more than a "
        "round trip across the federation.",
    )
    improvement_hold_ms: WholeNumber = Field(
        default=30,
        ge=0,
        le=SPAN_MS_MAX,
        description="How long a relay waits for the cheaper copy it had last time.",
    )
    parent_settle_ms: WholeNumber = Field(
        default=1_000,
        ge=0,
        le=SPAN_MS_MAX,
        description="How long a parent stays one while its copy of a newer number travels.",
    )
    handover_ms: WholeNumber = Field(
        default=1_000,
        ge=0,
        le=SPAN_MS_MAX,
        description="How long the mesh of a deposed core still carries data.",
    )
    list_request_gap_ms: _Span = Field(
        default=250, description="Least time between two requests for the same list."
    )
    filters_max: WholeNumber = Field(
        default=1_000_000, ge=1, le=2**31, description="Filters one agent holds; more are refused."
    )
    cores_max: WholeNumber = Field(
        default=65_536, ge=1, le=2**31, description="Cores one agent holds; more are refused."
    )

    @model_validator(mode="after")
    def _gap_is_within_the_interval(self) -> Self:
        if self.core_ann_gap_ms >= self.core_ann_interval_ms:
            raise wrong(
                "core_ann_gap_ms",
                f"core_ann_gap_ms = {self.core_ann_gap_ms} is not less than "
                f"core_ann_interval_ms = {self.core_ann_interval_ms}",
                "lower it",
            )
        return self


_Strategy = Literal["mesh", "shortest-path"]


class RoutedFilterSettings(Section):
    """Filters that are routed in another way."""

    filter: TopicFilter = Field(description="What it contains is routed by this strategy.")
    strategy: _Strategy = Field(description="As routing.strategy.")


class RoutingSettings(Section):
    """How publications find their way to what clients of this broker want. Agents may differ."""

    strategy: _Strategy = Field(
        default="mesh",
        description='"mesh": the brokers that want a filter share a mesh around one core; '
        '"shortest-path": each gets publications over the shortest path from wherever they are '
        "published: less delay, no redundancy, more state.",
    )
    filters: tuple[RoutedFilterSettings, ...] = Field(
        default=(),
        max_length=ROUTED_FILTERS_MAX,
        description='Other strategies: `[{filter = "alarms/#", strategy = "shortest-path"}]`; the '
        "first that contains a client's filter counts.",
    )

    @property
    def strategies(self) -> tuple[tuple[str, Strategy], ...]:
        """The filters with strategies of their own."""
        return tuple((each.filter, Strategy(each.strategy)) for each in self.filters)

    @model_validator(mode="after")
    def _every_filter_counts(self) -> Self:
        for at, later in enumerate(self.filters):
            for earlier in self.filters[:at]:
                if contains(earlier.filter, later.filter):
                    raise wrong(
                        f"filters.{at}.filter",
                        f"routing.filters[{at}].filter = {later.filter!r} never counts, for "
                        f"{earlier.filter!r} before it contains it",
                        "put it first, or remove it",
                    )
        return self


class CustodySettings(Section):
    """What is kept of QoS 1 and 2 publications, so that nothing is lost."""

    keep_s: WholeNumber = Field(
        default=1_800,
        ge=1,
        le=7 * 86_400,
        description="Seconds for which what our clients published is kept, and for which brokers "
        "out of reach can still get it; also how long our broker keeps our session.",
    )
    bytes_max: WholeNumber = Field(
        default=268_435_456,
        ge=1_048_576,
        le=2**40,
        description="Bytes of it kept on disk; the oldest goes first.",
    )
    fsync: Literal["never", "interval", "always"] = Field(
        default="never",
        description="When it must be on the disk itself: a crash of the agent loses nothing in any "
        "case, one of the machine up to the last fsync.",
    )


class DataSettings(Section):
    """The data path."""

    frame_bytes_max: WholeNumber = Field(
        default=262_144,
        ge=1_024,
        le=1_900_000,
        description="Largest frame; a larger publication travels alone. Stays under the 2,000,000 "
        "bytes of max_packet_size that Mosquitto 2.1 allows by default.",
    )
    hop_limit: WholeNumber = Field(
        default=64, ge=1, le=255, description="Hops after which a frame is dropped."
    )
    duplicate_window_bits: WholeNumber = Field(
        default=65_536,
        ge=1_024,
        le=2**24,
        description="Frames remembered per origin and epoch; a multiple of 8.",
        multiple_of=8,
    )
    origins_max: WholeNumber = Field(
        default=4_096, ge=1, le=2**20, description="Origins remembered; the oldest is forgotten."
    )
    topic_cache_max: WholeNumber = Field(
        default=65_536, ge=1, le=2**24, description="Topics whose route is cached."
    )
    busy_poll_us: WholeNumber = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="After data, poll for so long instead of sleeping: less delay, for a processor "
        "that is kept busy while data flows. 0: never.",
    )


class DiscoverySettings(Section):
    """How this agent learns what its broker's clients subscribe to."""

    log_topics: Switch = Field(
        default=True, description="Read the broker's log topics (Mosquitto: log_dest topic)."
    )
    filters: tuple[TopicFilter, ...] = Field(
        default=(),
        max_length=CONFIGURED_FILTERS_MAX,
        description="Filters to ask for whatever clients do.",
    )
    new_regular_topic: Switch = Field(
        default=True, description="Clients may announce filters on $fed/<federation>/."
    )
    match_all: Literal["local", "federate"] = Field(
        default="local",
        description='What # and +/# of local clients ask for: "local" serves them from this '
        'broker only, "federate" pulls everything.',
    )
    widen: Switch = Field(
        default=True,
        description="Ask for more than needed while the learned table cannot be trusted.",
    )
    registration_ttl_ms: _Span = Field(
        default=3_600_000,
        description="How long a filter registered on new_regular_topic is asked for.",
    )
    unlogged_subscriptions: WholeNumber = Field(
        default=0,
        ge=0,
        le=2**31,
        description="Subscriptions of bridges configured in the broker itself: it counts but "
        "never logs them.",
    )


class ShareSettings(Section):
    """Shared subscriptions, ``$share/<group>/<filter>``, with members on several brokers."""

    scope: Literal["federation", "broker"] = Field(
        default="federation",
        description='Who shares: "federation" gives each publication to one member of the group '
        'anywhere, "broker" to one member on each broker.',
    )
    stand_ins_max: WholeNumber = Field(
        default=8,
        ge=0,
        le=64,
        description="Connections by which the agent takes what is published here for members "
        "elsewhere out of a group: as many as members elsewhere give everybody the same share, 0 "
        "leaves publications with the members of the broker where they were published.",
    )
    bytes_max: WholeNumber = Field(
        default=67_108_864,
        ge=65_536,
        le=2**40,
        description="Publications on their way to members elsewhere that are kept in memory; "
        "beyond it they are dropped and counted.",
    )
    keep_ms: _Span = Field(
        default=300_000,
        description="How long a publication is kept while no broker with members confirms it.",
    )
    linger_ms: _Span = Field(
        default=2_000,
        description="What a broker confirmed for so long before it was last heard is given to "
        "other members when it is gone, for it may not have reached its own: more than its "
        "members need to take what waits for them.",
    )


class RetainedSettings(Section):
    """Retained messages: a new subscriber gets the value wherever it was set."""

    enabled: Switch = Field(
        default=True,
        description="Whether to fetch, give and order values; otherwise only live ones travel.",
    )
    topics_max: WholeNumber = Field(
        default=100_000,
        ge=1,
        le=2**24,
        description="Topics whose version is known, deleted ones included; others take what comes.",
    )
    tombstone_keep_s: WholeNumber = Field(
        default=604_800,
        ge=60,
        le=2**31,
        description="How long a delete is remembered: longer than brokers are apart from each "
        "other, or what was deleted meanwhile comes back.",
    )
    values_per_s: WholeNumber = Field(
        default=4_000,
        ge=1,
        le=1_000_000,
        description="Values fetched from others at most, so that live traffic is not delayed.",
    )
    resync_s: WholeNumber = Field(
        default=60,
        ge=1,
        le=86_400,
        description="About so often 64 filters are compared without another reason, in turns.",
    )


class AgentFailoverSettings(Section):
    """Who steps in when a broker dies: the controller, the guide for clients, prepared sessions."""

    enabled: Switch = Field(
        default=True,
        description="Take part: announce this broker, be the controller where its rank is the "
        "smallest, keep the guide that gateways read.",
    )
    report_sessions: Switch = Field(
        default=True,
        description="Tell all agents which clients publish and subscribe what here. Without it "
        "substitutes are chosen by load and distance, and no sessions are prepared.",
    )
    advertise: Url | None = Field(
        default=None,
        description="Where clients and gateways reach this broker; broker.advertise when absent.",
    )
    prepare_sessions: Switch = Field(
        default=False,
        description="As a substitute, prepare the persistent sessions of a dead broker's clients "
        "on this one, so that messages wait for them. The agent connects with their client ids: "
        "its user needs the right to.",
    )
    repeat: Switch = Field(
        default=True,
        description="With prepared sessions: publish here again what was published elsewhere "
        "between the broker's death and its clients' sessions here. Others who subscribe the same "
        "may get it twice; without it moved clients may miss it.",
    )
    session_keep_s: WholeNumber = Field(
        default=3_600,
        ge=1,
        le=2**31,
        description="How long a prepared session waits for its client.",
    )
    gone_after_ms: _Span = Field(
        default=1_000,
        description="A broker that nobody hears announced for so long counts as gone.",
    )
    orphan_after_ms: _Span = Field(
        default=15_000,
        description="The same, while only its agent is silent and the broker answers neighbours.",
    )
    office_ms: _Span = Field(
        default=1_000,
        description="How long a new controller watches before it decides anything.",
    )
    report_interval_ms: _Span = Field(
        default=1_000, description="Between looks at our own load and clients."
    )
    rows_max: WholeNumber = Field(
        default=10_000,
        ge=0,
        le=1_000_000,
        description="Rows of the session flow table told, and held of each other broker.",
    )
