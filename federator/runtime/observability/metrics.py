"""The metrics of an agent for Prometheus: one table of names, kinds and meanings.

``agent_metrics`` reads the values; ``exposition`` makes metric families of both.
deploy/prometheus/alerts.yml lists the alarms on them.

Source: docs/observability.md.
"""

from typing import Final

from federator.runtime.process.exposition import table

_STATE: Final = table(
    "gauge",
    ("ready", "ready", "1 when publications flow."),
    ("stands_well", "stands_well", "1 when it is joined, or alone as it is meant to be."),
    ("broker_connected", "broker_connected", "1 when our own broker answers."),
    ("epoch", "epoch", "Incarnation of this agent."),
    ("neighbours", "neighbours", "Brokers this agent keeps trying to reach."),
    ("neighbours_up", "neighbours_up", "Links that work both ways."),
    ("cores", "cores", "Cores this agent knows."),
    ("filters", "filters", "Filters this agent holds, its own and others'."),
    ("filters_limit", "filters_limit", "Filters the agent would hold (mesh.filters_max)."),
    ("local_filters", "local_filters", "Filters that clients of our broker subscribe to."),
    ("local_clients", "local_clients", "Clients connected to our broker, as failover knows them."),
    ("destinations", "destinations", "Brokers to route to over shortest paths, per filter."),
    ("widened", "discovery_widened", "1 while more is asked for than is known to be needed."),
    ("send_queue_bytes", "send_queue_bytes", "Bytes waiting to be sent, all connections."),
    ("send_queue_limit", "send_queue_limit_bytes", "Most that may wait on one connection."),
    ("topic_cache_size", "topic_cache_entries", "Topics whose route is cached."),
    ("origins", "duplicate_window_origins", "Origins in the duplicate window."),
    ("bridges", "bridges", "Bridges that are connected to our broker."),
    ("bridge_loops", "bridge_loops", "Topics that come back through a bridge; broken."),
    ("loop_lag_s", "event_loop_lag_seconds", "The latest that a timer ran in the last minute."),
)

_TRAFFIC: Final = table(
    "counter",
    ("publications_in", "publications_received", "Publications of our broker's clients taken up."),
    ("delivered_publications", "publications_delivered", "Publications handed to our broker."),
    ("publications_out", "publications_sent", "Publications sent as their origin, each once."),
    ("relayed", "publications_relayed", "Publications carried on, once per next hop."),
    ("kept", "publications_kept", "Collected elsewhere, and kept here by a steerer's plan."),
    ("kept_bytes", "publications_kept_bytes", "Bytes of those publications."),
    ("no_route", "publications_unrouted", "Wanted elsewhere, and no way: not sent."),
    ("dropped", "publications_dropped", "Publications lost here: queue full, no link."),
    (
        "duplicates_suppressed",
        "publications_duplicate",
        "Publications in frames suppressed: already handled.",
    ),
    (
        "copies_dropped",
        "publication_copies_dropped",
        "Second copies of publications, dropped while the cover changed.",
    ),
    (
        "deferred",
        "publications_deferred",
        "Copies under custody not sent now, link down or full; asked for later.",
    ),
    ("frames_in", "frames_received", "Frames from neighbours."),
    ("frames_out", "frames_sent", "Frames to neighbours."),
    ("frame_bytes_in", "frames_received_bytes", "Bytes of frames from neighbours."),
    ("frame_bytes_out", "frames_sent_bytes", "Bytes of frames to neighbours."),
    ("duplicate_frames", "frames_duplicate", "Frames suppressed: already handled."),
    ("malformed_frames", "frames_malformed", "Frames that do not decode."),
    ("hop_limit_exceeded", "frames_hop_limit", "Frames dropped: too many hops."),
    (
        "frames_of_strangers",
        "frames_of_strangers",
        "Frames dropped: their sender has no link, or names no member.",
    ),
    ("unproven_frames", "frames_unproven", "Frames dropped: their origin did not prove them."),
    ("frames_ahead", "frames_dated_ahead", "Frames dated over 50 ms later than our clock."),
    ("unknown_filters", "frame_filters_unknown", "Filters of frames without a route here."),
    ("in_doubt", "publications_in_doubt", "Delivered while widened, for no client known to want."),
    ("in_doubt_bytes", "publications_in_doubt_bytes", "Bytes of the frames with those."),
    ("rejected", "publications_rejected", "Publications too long for a broker, or refused by it."),
    ("reconnects", "reconnects", "Connections made again after a loss, all brokers."),
    ("client_drops", "broker_dropped_ours", "Times the broker said it drops messages for us."),
    ("flows_unsettled", "flows_unsettled", "Flows moved on before their former way was empty."),
    ("rules_withheld", "link_rules_withheld", "Publications that rules of links stopped."),
    ("bridge_loop_drops", "bridge_loop_drops", "Publications back from a bridge, not let in."),
    ("http_refused", "http_connections_refused", "HTTP connections that gave way to others."),
) + table(
    "histogram",
    (
        "delay",
        "delivery_delay_seconds",
        "Age of frames published here, from their origin; by two clocks.",
    ),
)

_CONTROL: Final = table(
    "counter",
    ("control_in", "control_messages_received", "Control messages heard."),
    ("control_out", "control_messages_sent", "Control messages sent."),
    ("control_bytes_out", "control_sent_bytes", "Bytes of control messages sent."),
    ("control_malformed", "control_messages_malformed", "Control messages that do not decode."),
    ("control_dropped", "control_messages_dropped", "Control messages not sent: queue or link."),
    ("control_refused", "control_messages_refused", "Control messages unread: no room to wait."),
    ("trust_refused", "trust_refused", "Messages and frames turned away: not a member's word."),
    labels=("kind",),
)

_STORAGE: Final = table(
    "counter",
    ("damaged", "storage_damaged", "Places of kept files that cannot be read."),
    labels=("file",),
)

_DISCOVERY: Final = table(
    "counter",
    ("log_lines", "discovery_log_lines", "Lines read from the broker's log topics."),
    ("log_lines_ambiguous", "discovery_log_lines_ambiguous", "Lines with more than one reading."),
    ("log_lines_malformed", "discovery_log_lines_malformed", "Lines not understood."),
)

_CUSTODY: Final = table(
    "gauge",
    ("custody_log_bytes", "custody_log_bytes", "Size of the custody log on disk."),
    (
        "custody_log_limit",
        "custody_log_limit_bytes",
        "Most that the custody log may have (custody.bytes_max).",
    ),
    ("custody_log_records", "custody_log_records", "Frames in the custody log."),
    ("custody_owed", "custody_owed_filters", "Filters kept wanted for brokers out of reach."),
    ("custody_chains", "custody_chains", "Pairs of origin and filter followed."),
    ("custody_gaps", "custody_gaps", "Chains on which something is known to be missing."),
    ("custody_held_bytes", "custody_held_bytes", "Bytes of frames that wait for earlier ones."),
) + table(
    "counter",
    ("custody_asked", "custody_requests_sent", "Requests for what was missing."),
    ("custody_repairs", "custody_repairs_sent", "Frames sent again on request."),
    ("custody_duplicates", "custody_frames_duplicate", "Frames that were delivered before."),
    ("custody_gone", "custody_gaps_lost", "Gaps whose frames the origin no longer had."),
    ("custody_unfollowed", "custody_frames_unfollowed", "Frames of origins beyond those followed."),
    ("custody_dropped_by_age", "custody_log_expired", "Frames dropped from the log, too old."),
    ("custody_dropped_for_room", "custody_log_overflowed", "Frames dropped, no room in the log."),
    ("custody_failures", "custody_write_failures", "Times that log or journal were not written."),
)

_RETAINED: Final = table(
    "gauge",
    ("retained_topics", "retained_topics", "Topics whose retained value has a known version."),
    ("retained_tombstones", "retained_tombstones", "Deletes of retained values remembered."),
    ("retained_guests", "retained_guests", "Topics whose version has no lasting place."),
    ("retained_full", "retained_full", "1 while there are more topics than lasting places."),
) + table(
    "counter",
    ("retained_fetched", "retained_fetched", "Retained values fetched from other brokers."),
    ("retained_refused", "retained_refused", "Topics whose version found no place."),
    ("retained_too_long", "retained_too_long", "Times a value asked for was too long to give."),
    ("retained_given", "retained_given", "Retained values given to other brokers."),
    ("retained_outdated", "retained_outdated", "Retained values that came when a newer was here."),
    ("retained_failed", "retained_failures", "Comparisons of retained values that failed."),
)

_SHARE: Final = table(
    "gauge",
    ("share_groups", "share_groups", "Shared groups with members anywhere."),
    ("share_owed", "share_owed", "Publications for shared groups that no broker confirmed yet."),
) + table(
    "counter",
    ("share_sent", "share_sent", "Publications taken up for members of groups elsewhere."),
    ("share_delivered", "share_delivered", "Publications for members of groups here."),
    (
        "share_returned",
        "share_returned",
        "Publications for groups published again: a stand-in had got them.",
    ),
    ("share_resent", "share_resent", "Publications sent again for want of a confirmation."),
    ("share_reassigned", "share_reassigned", "Publications given to others, their broker gone."),
    (
        "share_left_to_others",
        "share_left_to_others",
        "Publications for groups not published: others here get them.",
    ),
    ("share_passed_on", "share_passed_on", "Publications whose members had left, sent elsewhere."),
    ("share_no_way", "share_no_way", "Publications and confirmations without a way just then."),
    ("share_malformed", "share_malformed", "Frames for groups that do not decode."),
    ("share_lost", "share_lost", "Publications for groups given up or refused."),
)

_FAILOVER: Final = (
    table(
        "gauge",
        ("controller", "controller_id", "Id of the broker that is the controller for us."),
        ("in_office", "controller_in_office", "1 when we hold the office of the controller."),
        ("draining", "draining", "1 while an operator moves our clients away."),
        ("takeovers", "takeovers", "Brokers that somebody has stepped in for, as we know."),
        ("stood_in", "brokers_stood_in_for", "Brokers that we have stepped in for."),
        ("flow_rows", "session_flow_rows", "Rows of the session flow table, all brokers."),
        ("sessions_waiting", "sessions_waiting", "Prepared sessions whose client has not come."),
    )
    + table(
        "gauge", ("brokers", "brokers", "Brokers of the federation, us too."), labels=("state",)
    )
    + table(
        "counter",
        ("sessions_prepared", "sessions_prepared", "Sessions made for clients of dead brokers."),
        ("sessions_refused", "sessions_refused", "Sessions that our broker did not let us make."),
        ("names_refused", "broker_names_refused", "Records of brokers with what is no name."),
    )
)

_TLS: Final = table(
    "gauge",
    (
        "tls_expiry",
        "tls_certificate_expiry_timestamp_seconds",
        "When a TLS certificate that we present ends, as it was read at the start.",
    ),
    labels=("file",),
)

_TOPOLOGY: Final = table(
    "gauge",
    ("topology_brokers", "topology_brokers", "Brokers that tell of their links; mode auto only."),
    ("topology_links", "topology_links", "Links of which both ends tell; mode auto only."),
    ("topology_wanted", "neighbours_wanted", "Links that this broker wants; mode auto only."),
) + table(
    "counter",
    ("topology_given_up", "links_given_up", "Links given up for better ones; mode auto only."),
)

_TRUST: Final = table(
    "gauge",
    (
        "certificate_expiry",
        "certificate_expiry_timestamp_seconds",
        "When our certificate ends; absent in an open federation.",
    ),
    ("trusted_keys", "trusted_keys", "Federation keys trusted; absent in an open federation."),
)

_DATAGRAMS: Final = table(
    "counter",
    ("datagrams_out", "datagrams_sent", "Datagrams sent."),
    ("datagrams_in", "datagrams_received", "Datagrams taken: the seal was whole and new."),
    ("datagram_bytes_out", "datagrams_sent_bytes", "Bytes of datagrams sent, with their seals."),
    ("datagrams_refused", "datagrams_refused", "Datagrams not taken: not a neighbour's, or old."),
    ("datagrams_unsent", "datagrams_unsent", "Datagrams lost here: the kernel took no more."),
)

_DIRECT: Final = table(
    "counter",
    ("direct_frames_in", "direct_frames_received", "Frames that came straight from an agent."),
    ("direct_again", "direct_frames_repeated", "Frames not confirmed when a way ended: by broker."),
    ("direct_refused", "direct_refused", "Callers at the port for agents that were sent away."),
)

_STREAM: Final = table(
    "gauge",
    ("stream_bytes", "metrics_spool_bytes", "Size of the metrics stream's spool on disk."),
    (
        "stream_limit",
        "metrics_spool_limit_bytes",
        "Most that the spool may have (metrics.spool_bytes_max).",
    ),
) + table(
    "counter",
    ("stream_batches", "metrics_batches_written", "Batches of the metrics stream written."),
    ("stream_dropped", "metrics_batches_dropped", "Batches dropped for room in the spool."),
    ("stream_lost", "metrics_records_lost", "Records that found no room, in memory or on disk."),
    ("stream_failures", "metrics_write_failures", "Times that the spool could not be written."),
    ("stream_answers", "metrics_answers_sent", "Messages of batches sent again on request."),
    ("stream_refused", "metrics_asks_refused", "Asks beyond those that can wait or be judged."),
    ("stream_malformed", "metrics_asks_malformed", "Asks that mean nothing."),
)

_HUB: Final = (
    table(
        "gauge",
        ("leaves", "leaves", "Leaves that hang on this broker; it and the rest are of hubs only."),
        (
            "mesh_asked",
            "hub_filters_asked",
            "Filters that a hub asks the mesh for, within a bound.",
        ),
        ("leaves_log_bytes", "leaves_custody_log_bytes", "Custody logs for all leaves, on disk."),
        ("leaves_owed", "leaves_custody_owed_filters", "Kept wanted for leaves out of reach."),
        ("leaves_gaps", "leaves_custody_gaps", "Chains from leaves on which something is missing."),
    )
    + table(
        "counter",
        ("leaves_taken", "leaves_publications_taken", "Publications for leaves, once per leaf."),
        ("leaves_frames_out", "leaves_frames_sent", "Frames to leaves."),
        ("leaves_frames_in", "leaves_frames_received", "Frames from leaves."),
        ("leaves_deferred", "leaves_publications_deferred", "Copies for leaves not sent at once."),
        ("leaves_log_overflowed", "leaves_custody_log_overflowed", "For leaves, no room in a log."),
        ("leaves_log_failures", "leaves_custody_write_failures", "Logs for leaves not written."),
        ("leaves_gone", "leaves_custody_gaps_lost", "Gaps whose frames a leaf no longer had."),
    )
    + table(
        "counter",
        ("brought", "hub_publications_brought", "Publications that a side gave a hub's broker."),
        ("brought_bytes", "hub_publications_brought_bytes", "Bytes of those publications."),
        ("in_vain", "hub_publications_in_vain", "Of those, wanted by no other side."),
        ("in_vain_bytes", "hub_publications_in_vain_bytes", "Bytes of those in vain."),
        labels=("side",),
    )
    + table(
        "gauge",
        ("leaf_up", "leaf_up", "1 when the link to this leaf works both ways."),
        ("leaf_filters_wanted", "leaf_filters_wanted", "Filters that this leaf wants."),
        ("leaf_filters_told", "leaf_filters_told", "Filters that this leaf is told of others'."),
        ("leaf_queued", "leaf_send_queue_bytes", "Bytes waiting to be sent to this leaf."),
        labels=("leaf",),
    )
    + table(
        "counter",
        ("leaf_bytes_out", "leaf_frames_sent_bytes", "Bytes of frames to this leaf."),
        ("leaf_bytes_in", "leaf_frames_received_bytes", "Bytes of frames from this leaf."),
        ("leaf_dropped", "leaf_publications_dropped", "For this leaf, lost here: no room."),
        labels=("leaf",),
    )
)
"""Metrics of a hub's ports; of at most 256 leaves."""

_SPANS: Final = table(
    "gauge",
    ("spans_share", "spans_share", "Share of frames that are told as spans now."),
    ("spans_waiting", "spans_waiting", "Spans that wait for the collector."),
    ("spans_limit", "spans_waiting_limit", "Most that may wait (opentelemetry.queue_spans_max)."),
) + table(
    "counter",
    ("spans_exported", "spans_exported", "Spans that the collector took."),
    ("spans_failed", "spans_failed", "Spans sent in vain: the collector refused, or was silent."),
    ("spans_dropped", "spans_dropped", "Spans not sent: too many waited."),
    (
        "spans_passed_over",
        "spans_passed_over",
        "Frames of the share not told: beyond opentelemetry.spans_per_s_max.",
    ),
)

_ABOUT: Final = table(
    "gauge",
    ("about", "agent_info", "1; the labels say who this is and how it is set up."),
    labels=("federation", "broker", "security", "strategy"),
) + table(
    "gauge",
    (
        "called",
        "broker_info",
        "1; the labels say what our broker is called. Absent without a name.",
    ),
    labels=("broker", "name"),
)

_PLANES: Final = _ABOUT + _STATE + _TRAFFIC + _CONTROL + _STORAGE + _DISCOVERY
_FEATURES: Final = _CUSTODY + _RETAINED + _SHARE + _FAILOVER + _TLS + _TOPOLOGY + _TRUST
AGENT: Final = _PLANES + _FEATURES + _DATAGRAMS + _DIRECT + _STREAM + _SPANS + _HUB
"""Metrics of the whole agent."""

LINK: Final = table(
    "gauge",
    ("up", "link_up", "1 when the link works both ways."),
    ("rtt_s", "link_round_trip_seconds", "Last measured round trip."),
    ("cost", "link_cost", "Cost of the link."),
    ("queue_bytes", "link_send_queue_bytes", "Bytes waiting to be sent to the neighbour."),
    ("capacity", "link_capacity_bits", "bit/s that the link carries, where that is known."),
    ("datagrams_used", "link_datagrams_used", "1 when frames go in datagrams."),
    ("direct_used", "link_direct_used", "1 when frames go straight to its agent."),
    ("datagrams_lost", "link_datagram_loss_ratio", "Share of datagrams to it lost, lately."),
    ("datagrams_burst", "link_datagram_burst", "Datagrams lost in a row on average, lately."),
    labels=("neighbour",),
) + table(
    "counter",
    ("bytes_in", "link_received_bytes", "Bytes read from the neighbour's broker."),
    ("bytes_out", "link_sent_bytes", "Bytes written to the neighbour's broker."),
    ("packets_out", "link_sent_packets", "MQTT packets written."),
    ("drops", "link_dropped", "Frames and messages not sent: queue full or link down."),
    ("reconnects", "link_reconnects", "Connections made again after a loss."),
    ("direct_bytes", "link_direct_sent_bytes", "Bytes that its agent has straight from ours."),
    ("datagram_parts", "link_datagram_parts_sent", "Datagrams with parts of frames sent."),
    ("datagram_repairs", "link_datagram_repairs_sent", "Repair packets sent."),
    ("datagram_rebuilt", "link_datagram_parts_rebuilt", "Lost parts rebuilt from repair packets."),
    ("datagram_returned", "link_datagram_frames_returned", "Frames not mended in time: by broker."),
    labels=("neighbour",),
)
"""Values of one link each, labelled with the neighbour's id; at most ``NEIGHBOURS_MAX``."""
