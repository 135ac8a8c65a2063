"""The metrics of an agent for Prometheus: where each stands in its status, kind and meaning.

``exposition`` reads them, at a scrape. deploy/prometheus/alerts.yml lists the alarms on them.

Source: docs/observability.md.
"""

from typing import Final

from federator.runtime.process.exposition import table

AGENT: Final = table(
    "federator",
    """
gauge about federation broker security strategy
  = agent_info 1; the labels say who this is and how it is set up.
gauge about broker name
  = broker_info 1; the labels say what our broker is called. Absent without a name.
gauge .
  ready ready 1 when publications flow.
  stands_well stands_well 1 when it is joined, or alone as it is meant to be.
  epoch epoch Incarnation of this agent.
gauge broker
  up broker_connected 1 when our own broker answers.
gauge connections
  neighbours neighbours Brokers this agent keeps trying to reach.
  neighbours_up neighbours_up Links that work both ways.
  send_queue_bytes send_queue_bytes Bytes waiting to be sent, all connections.
  send_queue_limit send_queue_limit_bytes Most that may wait on one connection.
counter connections
  reconnects reconnects Connections made again after a loss, all brokers.
  rejected publications_rejected Publications too long for a broker, or refused by it.
gauge routing
  cores cores Cores this agent knows.
  filters filters Filters this agent holds, its own and others'.
  filters_limit filters_limit Filters the agent would hold (mesh.filters_max).
  local_filters local_filters Filters that clients of our broker subscribe to.
  destinations destinations Brokers to route to over shortest paths, per filter.
  topics_cached topic_cache_entries Topics whose route is cached.
  origins duplicate_window_origins Origins in the duplicate window.
gauge discovery
  widened discovery_widened 1 while more is asked for than is known to be needed.
counter discovery
  broker_drops broker_dropped_ours Times the broker said it drops messages for us.
  lines discovery_log_lines Lines read from the broker's log topics.
  ambiguous discovery_log_lines_ambiguous Lines with more than one reading.
  unreadable discovery_log_lines_malformed Lines not understood.
gauge loops
  bridges_total bridges Bridges that are connected to our broker.
  broken_total bridge_loops Topics that come back through a bridge; broken.
counter loops
  dropped bridge_loop_drops Publications back from a bridge, not let in.
gauge process
  loop_lag_s event_loop_lag_seconds The latest that a timer ran in the last minute.
counter process
  http_refused http_connections_refused HTTP connections that gave way to others.
counter counters.data
  publications_in publications_received Publications of our broker's clients taken up.
  delivered_publications publications_delivered Publications handed to our broker.
  publications_out publications_sent Publications sent as their origin, each once.
  relayed publications_relayed Publications carried on, once per next hop.
  kept publications_kept Collected elsewhere, and kept here by a steerer's plan.
  kept_bytes publications_kept_bytes Bytes of those publications.
  no_route publications_unrouted Wanted elsewhere, and no way: not sent.
  dropped publications_dropped Publications lost here: queue full, no link.
  duplicates_suppressed publications_duplicate Publications in frames suppressed: already handled.
  deferred publications_deferred Copies under custody not sent now, link down or full; asked for
      later.
  frames_in frames_received Frames from neighbours.
  frames_out frames_sent Frames to neighbours.
  copies_out publications_copied Publications in frames to neighbours, once per next hop.
  frame_bytes_in frames_received_bytes Bytes of frames from neighbours.
  frame_bytes_out frames_sent_bytes Bytes of frames to neighbours.
  duplicate_frames frames_duplicate Frames suppressed: already handled.
  malformed_frames frames_malformed Frames that do not decode.
  hop_limit_exceeded frames_hop_limit Frames dropped: too many hops.
  frames_of_strangers frames_of_strangers Frames dropped: their sender has no link, or names no
      member.
  unproven_frames frames_unproven Frames dropped: their origin did not prove them.
  unknown_filters frame_filters_unknown Filters of frames without a route here.
  in_doubt publications_in_doubt Delivered while widened, for no client known to want.
  in_doubt_bytes publications_in_doubt_bytes Bytes of the frames with those.
  flows_unsettled flows_unsettled Flows moved on before their former way was empty.
counter counters
  copies_dropped publication_copies_dropped Second copies of publications, dropped while the cover
      changed.
counter rules
  withheld link_rules_withheld Publications that rules of links stopped.
counter delays
  ahead frames_dated_ahead Frames dated over 50 ms later than our clock.
histogram delays
  seconds delivery_delay_seconds Age of frames published here, from their origin; by two clocks.
counter counters kind
  control_received control_messages_received Control messages heard.
  control_sent control_messages_sent Control messages sent.
  control_sent_bytes control_sent_bytes Bytes of control messages sent.
  control_malformed control_messages_malformed Control messages that do not decode.
  control_dropped control_messages_dropped Control messages not sent: queue or link.
  control_refused control_messages_refused Control messages unread: no room to wait.
counter security kind
  refused_by_kind trust_refused Messages and frames turned away: not a member's word.
gauge security
  expires_s certificate_expiry_timestamp_seconds When our certificate ends; absent in an open
      federation.
  trusted_keys trusted_keys Federation keys trusted; absent in an open federation.
gauge . file
  certificates tls_certificate_expiry_timestamp_seconds When a TLS certificate that we present
      ends, as it was read at the start.
counter . file
  damaged_files storage_damaged Places of kept files that cannot be read.
gauge custody
  log_bytes custody_log_bytes Size of the custody log on disk.
  log_limit custody_log_limit_bytes Most that the custody log may have (custody.bytes_max).
  log_records custody_log_records Frames in the custody log.
  owed custody_owed_filters Filters kept wanted for brokers out of reach.
  chains custody_chains Pairs of origin and filter followed.
  gaps custody_gaps Chains on which something is known to be missing.
  held_bytes custody_held_bytes Bytes of frames that wait for earlier ones.
counter custody
  asked custody_requests_sent Requests for what was missing.
  repairs custody_repairs_sent Frames sent again on request.
  duplicates custody_frames_duplicate Frames that were delivered before.
  gone custody_gaps_lost Gaps whose frames the origin no longer had.
  unfollowed custody_frames_unfollowed Frames of origins beyond those followed.
  dropped_by_age custody_log_expired Frames dropped from the log, too old.
  dropped_for_room custody_log_overflowed Frames dropped, no room in the log.
  failures custody_write_failures Times that log or journal were not written.
gauge retained
  topics retained_topics Topics whose retained value has a known version.
  tombstones retained_tombstones Deletes of retained values remembered.
  guests retained_guests Topics whose version has no lasting place.
  crowded retained_full 1 while there are more topics than lasting places.
counter retained
  values_fetched retained_fetched Retained values fetched from other brokers.
  refused retained_refused Topics whose version found no place.
  too_long retained_too_long Times a value asked for was too long to give.
  values_given retained_given Retained values given to other brokers.
  outdated retained_outdated Retained values that came when a newer was here.
  failed retained_failures Comparisons of retained values that failed.
gauge share
  groups_total share_groups Shared groups with members anywhere.
  owed share_owed Publications for shared groups that no broker confirmed yet.
counter share
  sent share_sent Publications taken up for members of groups elsewhere.
  delivered share_delivered Publications for members of groups here.
  returned share_returned Publications for groups published again: a stand-in had got them.
  resent share_resent Publications sent again for want of a confirmation.
  reassigned share_reassigned Publications given to others, their broker gone.
  left_to_others share_left_to_others Publications for groups not published: others here get them.
  passed_on share_passed_on Publications whose members had left, sent elsewhere.
  no_way share_no_way Publications and confirmations without a way just then.
  malformed share_malformed Frames for groups that do not decode.
  lost share_lost Publications for groups given up or refused.
gauge failover
  controller controller_id Id of the broker that is the controller for us.
  is_controller controller_in_office 1 when we hold the office of the controller.
  draining draining 1 while an operator moves our clients away.
  takeovers takeovers Brokers that somebody has stepped in for, as we know.
  stood_in brokers_stood_in_for Brokers that we have stepped in for.
  flow_rows session_flow_rows Rows of the session flow table, all brokers.
  clients local_clients Clients connected to our broker, as failover knows them.
gauge failover state
  brokers brokers Brokers of the federation, us too.
counter failover
  names_refused broker_names_refused Records of brokers with what is no name.
gauge failover.sessions
  waiting sessions_waiting Prepared sessions whose client has not come.
counter failover.sessions
  prepared sessions_prepared Sessions made for clients of dead brokers.
  refused sessions_refused Sessions that our broker did not let us make.
gauge topology
  brokers topology_brokers Brokers that tell of their links; mode auto only.
  links topology_links Links of which both ends tell; mode auto only.
  wanted neighbours_wanted Links that this broker wants; mode auto only.
counter topology
  given_up links_given_up Links given up for better ones; mode auto only.
counter datagrams
  datagrams_out datagrams_sent Datagrams sent.
  datagrams_in datagrams_received Datagrams taken: the seal was whole and new.
  bytes_out datagrams_sent_bytes Bytes of datagrams sent, with their seals.
  refused datagrams_refused Datagrams not taken: not a neighbour's, or old.
  unsent datagrams_unsent Datagrams lost here: the kernel took no more.
counter direct
  frames_in direct_frames_received Frames that came straight from an agent.
  by_broker direct_frames_repeated Frames not confirmed when a way ended: by broker.
  refused direct_refused Callers at the port for agents that were sent away.
gauge stream
  bytes_held metrics_spool_bytes Size of the metrics stream's spool on disk.
  bytes_max metrics_spool_limit_bytes Most that the spool may have (metrics.spool_bytes_max).
counter stream
  written metrics_batches_written Batches of the metrics stream written.
  dropped metrics_batches_dropped Batches dropped for room in the spool.
  records_lost metrics_records_lost Records that found no room, in memory or on disk.
  failures metrics_write_failures Times that the spool could not be written.
counter stream.asks
  answered metrics_answers_sent Messages of batches sent again on request.
  refused metrics_asks_refused Asks beyond those that can wait or be judged.
  malformed metrics_asks_malformed Asks that mean nothing.
gauge spans
  share spans_share Share of frames that are told as spans now.
  waiting spans_waiting Spans that wait for the collector.
  waiting_max spans_waiting_limit Most that may wait (opentelemetry.queue_spans_max).
counter spans
  exported spans_exported Spans that the collector took.
  failed spans_failed Spans sent in vain: the collector refused, or was silent.
  dropped spans_dropped Spans not sent: too many waited.
  passed_over spans_passed_over Frames of the share not told: beyond opentelemetry.spans_per_s_max.
gauge hub
  filters_asked hub_filters_asked Filters that a hub asks the mesh for, within a bound.
gauge ports
  leaves leaves Leaves that hang on this broker; it and the rest are of hubs only.
  log_bytes leaves_custody_log_bytes Custody logs for all leaves, on disk.
  owed leaves_custody_owed_filters Kept wanted for leaves out of reach.
  gaps leaves_custody_gaps Chains from leaves on which something is missing.
counter ports
  publications_in leaves_publications_taken Publications for leaves, once per leaf.
  frames_out leaves_frames_sent Frames to leaves.
  frames_in leaves_frames_received Frames from leaves.
  deferred leaves_publications_deferred Copies for leaves not sent at once.
  dropped_for_room leaves_custody_log_overflowed For leaves, no room in a log.
  failures leaves_custody_write_failures Logs for leaves not written.
  gone leaves_custody_gaps_lost Gaps whose frames a leaf no longer had.
counter hub[] side
  publications hub_publications_brought Publications that a side gave a hub's broker.
  bytes hub_publications_brought_bytes Bytes of those publications.
  in_vain hub_publications_in_vain Of those, wanted by no other side.
  bytes_in_vain hub_publications_in_vain_bytes Bytes of those in vain.
gauge leaves[id] leaf
  up leaf_up 1 when the link to this leaf works both ways.
  filters_wanted leaf_filters_wanted Filters that this leaf wants.
  filters_told leaf_filters_told Filters that this leaf is told of others'.
  queued leaf_send_queue_bytes Bytes waiting to be sent to this leaf.
counter leaves[id] leaf
  bytes_out leaf_frames_sent_bytes Bytes of frames to this leaf.
  bytes_in leaf_frames_received_bytes Bytes of frames from this leaf.
  dropped leaf_publications_dropped For this leaf, lost here: no room.
""",
)
"""Metrics of the whole agent. Those of leaves are of at most 256."""

LINK: Final = table(
    "federator",
    """
gauge traffic[neighbour] neighbour
  up link_up 1 when the link works both ways.
  rtt_s link_round_trip_seconds Last measured round trip.
  cost link_cost Cost of the link.
  queue_bytes link_send_queue_bytes Bytes waiting to be sent to the neighbour.
  capacity link_capacity_bits bit/s that the link carries, where that is known.
  datagrams_used link_datagrams_used 1 when frames go in datagrams.
  direct_used link_direct_used 1 when frames go straight to its agent.
  datagrams_lost link_datagram_loss_ratio Share of datagrams to it lost, lately.
  datagrams_burst link_datagram_burst Datagrams lost in a row on average, lately.
counter traffic[neighbour] neighbour
  bytes_in link_received_bytes Bytes read from the neighbour's broker.
  bytes_out link_sent_bytes Bytes written to the neighbour's broker.
  packets_out link_sent_packets MQTT packets written.
  drops link_dropped Frames and messages not sent: queue full or link down.
  reconnects link_reconnects Connections made again after a loss.
  direct_bytes link_direct_sent_bytes Bytes that its agent has straight from ours.
  datagram_parts link_datagram_parts_sent Datagrams with parts of frames sent.
  datagram_repairs link_datagram_repairs_sent Repair packets sent.
  datagram_rebuilt link_datagram_parts_rebuilt Lost parts rebuilt from repair packets.
  datagram_returned link_datagram_frames_returned Frames not mended in time: by broker.
""",
)
"""Metrics of one link each, labelled with the neighbour's id; at most ``NEIGHBOURS_MAX``."""
