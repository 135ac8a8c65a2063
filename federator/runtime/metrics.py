"""What Prometheus sees: one table of names, kinds and meanings.

Whoever counts keeps plain integers; when a scrape comes the app hands all of them over by the
attribute names in this table and gets metric families back. So the data path pays an addition, and
a metric's name is written once.

Names follow Prometheus: base units, ``_total`` for counters. No label holds a topic or a client;
the one label is ``neighbour``, bounded by ``NEIGHBOURS_MAX``.

Source: https://prometheus.io/docs/practices/naming/
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

Kind = Literal["counter", "gauge"]
Value = int | float


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric: ``attribute`` is the name under which its value is handed over."""

    attribute: str
    name: str
    kind: Kind
    help: str


def _table(kind: Kind, *rows: tuple[str, str, str]) -> tuple[Definition, ...]:
    suffix = "_total" if kind == "counter" else ""
    return tuple(
        Definition(attribute, f"federator_{name}{suffix}", kind, meaning)
        for attribute, name, meaning in rows
    )


AGENT = _table(
    "gauge",
    ("ready", "ready", "1 when publications flow."),
    ("broker_connected", "broker_connected", "1 when our own broker answers."),
    ("epoch", "epoch", "Incarnation of this agent."),
    ("neighbours_up", "neighbours_up", "Links that work both ways."),
    ("cores", "cores", "Cores this agent knows."),
    ("filters", "filters", "Filters this agent holds, its own and others'."),
    ("local_filters", "local_filters", "Filters that clients of our broker subscribe to."),
    ("destinations", "destinations", "Brokers to route to over shortest paths, per filter."),
    ("widened", "discovery_widened", "1 while more is asked for than is known to be needed."),
    ("send_queue_bytes", "send_queue_bytes", "Bytes waiting to be sent, all connections."),
    ("topic_cache_size", "topic_cache_entries", "Topics whose route is cached."),
    ("origins", "duplicate_window_origins", "Origins in the duplicate window."),
    ("bridges", "bridges", "Bridges that are connected to our broker."),
    ("bridge_loops", "bridge_loops", "Topics that come back through a bridge; broken."),
    (
        "custody_log_bytes",
        "custody_log_bytes",
        "Size of the custody log on disk.",
    ),
    ("custody_log_records", "custody_log_records", "Frames in the custody log."),
    ("custody_owed", "custody_owed_filters", "Filters kept wanted for brokers out of reach."),
    ("custody_chains", "custody_chains", "Pairs of origin and filter followed."),
    ("custody_gaps", "custody_gaps", "Chains on which something is known to be missing."),
    ("custody_held_bytes", "custody_held_bytes", "Of frames that wait for earlier ones."),
    ("retained_topics", "retained_topics", "Topics whose retained value has a known version."),
    ("retained_tombstones", "retained_tombstones", "Deletes of retained values remembered."),
    ("share_groups", "share_groups", "Shared groups with members anywhere."),
    ("share_owed", "share_owed", "Publications for shared groups that no broker confirmed yet."),
    ("loop_lag_s", "event_loop_lag_seconds", "How late the event loop last ran a timer."),
) + _table(
    "counter",
    ("control_in", "control_messages_received", "Control messages heard."),
    ("control_out", "control_messages_sent", "Control messages sent."),
    ("control_bytes_out", "control_sent_bytes", "Bytes of control messages sent."),
    ("control_malformed", "control_messages_malformed", "Control messages that do not decode."),
    ("control_dropped", "control_messages_dropped", "Control messages not sent: queue or link."),
    ("publications_in", "publications_received", "Publications of our broker's clients taken up."),
    ("publications_out", "publications_delivered", "Publications handed to our broker."),
    (
        "publications_dropped",
        "publications_dropped",
        "Publications lost here: queue full, no link.",
    ),
    ("frames_in", "frames_received", "Frames from neighbours."),
    ("frames_out", "frames_sent", "Frames to neighbours."),
    ("frame_bytes_in", "frames_received_bytes", "Bytes of frames from neighbours."),
    ("frame_bytes_out", "frames_sent_bytes", "Bytes of frames to neighbours."),
    ("frames_duplicate", "frames_duplicate", "Frames suppressed: already handled."),
    ("frames_malformed", "frames_malformed", "Frames that do not decode."),
    ("frames_hop_limit", "frames_hop_limit", "Frames dropped: too many hops."),
    ("frames_of_strangers", "frames_of_strangers", "Frames dropped: their sender has no link."),
    ("filters_unknown", "frame_filters_unknown", "Filters of frames without a route here."),
    ("reconnects", "reconnects", "Connections made again after a loss, all brokers."),
    ("log_lines", "discovery_log_lines", "Lines read from the broker's log topics."),
    ("log_lines_ambiguous", "discovery_log_lines_ambiguous", "Lines with more than one reading."),
    ("log_lines_malformed", "discovery_log_lines_malformed", "Lines not understood."),
    (
        "copies_dropped",
        "publication_copies_dropped",
        "Second copies of publications, dropped while the cover changed.",
    ),
    (
        "publications_deferred",
        "publications_deferred",
        "Copies under custody not sent now, link down or full; asked for later.",
    ),
    ("custody_asked", "custody_requests_sent", "Requests for what was missing."),
    ("custody_repairs", "custody_repairs_sent", "Frames sent again on request."),
    ("custody_duplicates", "custody_frames_duplicate", "Frames that were delivered before."),
    ("custody_gone", "custody_gaps_lost", "Gaps whose frames the origin no longer had."),
    ("custody_dropped_by_age", "custody_log_expired", "Frames dropped from the log, too old."),
    ("custody_dropped_for_room", "custody_log_overflowed", "Frames dropped, no room in the log."),
    ("custody_failures", "custody_write_failures", "Times that log or journal were not written."),
    ("share_sent", "share_sent", "Publications taken up for members of groups elsewhere."),
    ("share_delivered", "share_delivered", "Publications for members of groups here."),
    ("share_returned", "share_returned", "Of these, published again: a stand-in had got them."),
    ("share_resent", "share_resent", "Publications sent again for want of a confirmation."),
    ("share_reassigned", "share_reassigned", "Publications given to others, their broker gone."),
    ("share_left_to_others", "share_left_to_others", "Not published: others here get them."),
    ("share_passed_on", "share_passed_on", "Publications whose members had left, sent elsewhere."),
    ("share_no_way", "share_no_way", "Publications and confirmations without a way just then."),
    ("share_malformed", "share_malformed", "Frames for groups that do not decode."),
    ("share_lost", "share_lost", "Publications for groups given up or refused."),
    ("client_drops", "broker_dropped_ours", "Times the broker said it drops messages for us."),
    ("retained_fetched", "retained_fetched", "Retained values fetched from other brokers."),
    ("retained_given", "retained_given", "Retained values given to other brokers."),
    ("retained_outdated", "retained_outdated", "Retained values that came when a newer was here."),
    ("retained_failed", "retained_failures", "Comparisons of retained values that failed."),
    ("rules_withheld", "link_rules_withheld", "Publications that rules of links stopped."),
    ("bridge_loop_drops", "bridge_loop_drops", "Publications back from a bridge, not let in."),
    ("trust_refused", "trust_refused", "Messages and frames turned away: not a member's word."),
    ("http_refused", "http_connections_refused", "HTTP connections beyond the limit."),
)
"""Values of the whole agent."""

LINK = _table(
    "gauge",
    ("up", "link_up", "1 when the link works both ways."),
    ("rtt_s", "link_round_trip_seconds", "Last measured round trip."),
    ("cost", "link_cost", "Cost of the link."),
    ("queue_bytes", "link_send_queue_bytes", "Bytes waiting to be sent to the neighbour."),
) + _table(
    "counter",
    ("bytes_in", "link_received_bytes", "Bytes read from the neighbour's broker."),
    ("bytes_out", "link_sent_bytes", "Bytes written to the neighbour's broker."),
    ("packets_out", "link_sent_packets", "MQTT packets written."),
    ("drops", "link_dropped", "Frames and messages not sent: queue full or link down."),
    ("reconnects", "link_reconnects", "Connections made again after a loss."),
)
"""Values of one link, labelled with the neighbour's id."""

_TYPES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


def families(
    agent: Mapping[str, Value], links: Mapping[int, Mapping[str, Value]]
) -> Iterator[Metric]:
    """Metric families for what was handed over; an absent value is an absent metric.

    Args:
        agent: Attribute names of ``AGENT`` and their values.
        links: By neighbour id, attribute names of ``LINK`` and their values.

    Raises:
        KeyError: A value has no row in the table.
    """
    if unknown := set(agent) - {row.attribute for row in AGENT}:
        raise KeyError(f"no metric for {sorted(unknown)}")
    if unknown := {key for link in links.values() for key in link} - {r.attribute for r in LINK}:
        raise KeyError(f"no link metric for {sorted(unknown)}")
    for row in AGENT:
        if (value := agent.get(row.attribute)) is not None:
            yield _TYPES[row.kind](row.name, row.help, value=value)
    for row in LINK:
        family = _TYPES[row.kind](row.name, row.help, labels=["neighbour"])
        for neighbour in sorted(links):
            if (value := links[neighbour].get(row.attribute)) is not None:
                family.add_metric([str(neighbour)], value)
        yield family
