"""The report tables: Parquet folders of these names below the output folder (docs/analytics.md).

Durations are whole microseconds, ``_us``. ``window_start`` is UTC. NULL in a key means "over all".

``quality`` says how far to believe a delay: ``ok``; ``corrected``: the brokers' clocks disagreed,
and the offset, estimated from traffic both ways, was taken off; ``flagged``: they disagree, and no
traffic tells by how much. Where rows of several pairs were merged it is the worst of them, and
flagged delays are left out of the merged figures (``publications`` counts what was left in).
"""

from pyspark.sql.types import StructType

from federator_analytics.schemas.fields import struct

WINDOW_S = 10
"""Length of a window in ``delay_over_time``."""

_QUANTILES = "delay_us_p50 long?, delay_us_p95 long?, delay_us_p99 long?"

REPORT_TABLES: dict[str, StructType] = {
    # scope: all | pair | hops | strategy | pair_hops. floor_us: half round trips, least path.
    "delay": struct(
        "scope string, origin long?, destination long?, hops long?, qos long?, strategy string?",
        "publications long",
        _QUANTILES,
        "delay_us_mean double?, delay_us_min long?, delay_us_max long?, floor_us long?",
        "clock_offset_us long?, quality string",
    ),
    "delay_over_time": struct(
        "window_start timestamp, origin long, destination long, strategy string",
        "publications long",
        _QUANTILES,
        "quality string",
    ),
    # One row per hop of the way to the destination: from sender to receiver, the hop-th.
    "hop_times": struct(
        "origin long, destination long, hop long, sender long, receiver long, samples long",
        "hop_us_p50 long, hop_us_p95 long, quality string",
    ),
    # One row over all (strategy and redundancy NULL), and one per strategy and redundancy, whose
    # control figures are NULL when several share the federation: control traffic has no strategy.
    "overhead": struct(
        "strategy string?, redundancy long?, brokers long, links long, announcements long?",
        "control_messages long?, control_messages_per_announcement double?, bound_2l long",
        "control_bytes long?, data_bytes long?, control_bytes_per_data_byte double?",
        "publications_offered long?, publications_delivered long, data_copies long?",
        "copies_per_publication double?, duplicates_suppressed long?",
    ),
    # What broker sent to neighbour; NULL while the other end was not known.
    "control_by_kind": struct(
        "broker long, neighbour long?, kind string, messages long, bytes long",
    ),
    # offered = arrived + missing - surplus: what was owed and is settled; under_way: what is not.
    # out_of_order is of the pair and QoS: a frame carries several filters.
    "loss": struct(
        "filter string, origin long, destination long, qos long, offered long, arrived long",
        "missing long, surplus long, under_way long, not_owed long, out_of_order long, note string",
    ),
    "events": struct(
        "window_start timestamp, broker long, kind string, neighbour long?, filter string?",
        "subject long?, detail string?, value long?",
    ),
    "convergence": struct(
        "what string, started timestamp, settled timestamp, duration_us long, brokers long",
    ),
    "brokers": struct(
        "broker long, clients long?, filters long, publications_in long, publications_out long",
        "delivered long, no_route long, dropped long, cpu_share double?, rss_bytes_max long?",
        "send_queue_bytes_max long, custody_bytes_max long, loop_lag_us_max long, restarts long",
        "last_heard timestamp, name string?",
    ),
    "links": struct(
        "a long, b long, up_share double, round_trip_us_p50 long?, round_trip_us_min long?",
        "bytes_ab long, bytes_ba long, publications_ab long, publications_ba long",
        "duplicates long, queue_bytes_max long",
        # bit/s, the greatest told; load: of what could have been carried while that was told.
        "capacity_ab long?, capacity_ba long?, load_ab double?, load_ba double?",
    ),
    # The heaviest of each origin. rate: bit/s, the mean while it was told; bytes: at these rates.
    "flows": struct(
        "origin long, flow string, rate double?, rate_max long, bytes long, planned_share double?",
    ),
    "traffic_matrix": struct(
        "filter string, origin long, destination long, publications long, bytes long",
        "rate_per_s double?",
    ),
    # a < b. offset_us: clock of b minus clock of a. verdict: ok | corrected | flagged.
    "clocks": struct(
        "a long, b long, offset_us long?, one_way_min_ab_us long?, one_way_min_ba_us long?",
        "windows long, verdict string",
    ),
    # What the test clients measured themselves, to compare with `delay`.
    "clients": struct(
        "origin long, destination long, publications long",
        _QUANTILES,
        "delay_us_mean double?, delay_us_min long?, delay_us_max long?",
    ),
    "quarantine": struct("file string?, line long?, reason string, raw string"),
    "quarantine_counts": struct("reason string, records long"),
    "span": struct(
        "federation string, first timestamp, last timestamp, records long, brokers long",
        "restarts long, dropped_batches long, duplicates_removed long",
    ),
}
