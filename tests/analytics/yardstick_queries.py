"""The yardstick's definitions, as SQL (DuckDB)."""

VALUES = """
CREATE VIEW delay_values AS
SELECT origin, destination, hops, qos, strategy, at_us,
    base_us + CASE WHEN pair[1] = 0 THEN 0 ELSE round(2 * 1.02 ** pair[1] / 2.02)::BIGINT END AS us,
    pair[2] AS weight
FROM (SELECT origin, broker AS destination, hops, qos, strategy, at_us, base_us,
        unnest(delay) AS pair FROM deliveries)
"""

PAIRS = """
CREATE TABLE pairs AS
SELECT origin, destination,
    CASE WHEN origin = destination THEN 0 ELSE f.floor_us END AS floor_us,
    CASE WHEN origin > destination THEN -c.offset_us ELSE c.offset_us END AS offset_us,
    c.verdict AS quality
FROM (SELECT DISTINCT origin, broker AS destination FROM deliveries) d
LEFT JOIN floors f ON f.a = least(origin, destination) AND f.b = greatest(origin, destination)
LEFT JOIN clocks c ON c.a = least(origin, destination) AND c.b = greatest(origin, destination)
"""

VIEWS = (VALUES,)


def quantiles(source: str, keys: str, value: str, weight: str, percents: dict[str, int]) -> str:
    """Per key the least value that at least so many percent of the weight do not exceed."""
    columns = ", ".join(
        f"min({value}) FILTER (so_far * 100 >= total * {percent}) AS {name}"
        for name, percent in percents.items()
    )
    return f"""
    (SELECT {keys}, {columns} FROM (
        SELECT {keys}, {value},
            sum(w) OVER (PARTITION BY {keys} ORDER BY {value}) AS so_far,
            sum(w) OVER (PARTITION BY {keys}) AS total
        FROM (SELECT {keys}, {value}, sum({weight}) AS w FROM {source} GROUP BY {keys}, {value}))
    GROUP BY {keys})
    """


THREE = {"delay_us_p50": 50, "delay_us_p95": 95, "delay_us_p99": 99}
FLOW = ("origin", "destination", "hops", "qos", "strategy")
SCOPES = {
    "all": (),
    "pair": FLOW[:2],
    "hops": ("hops",),
    "strategy": ("strategy",),
    "pair_hops": FLOW,
}


def _delay_of(scope: str) -> str:
    """One scope: merged rows leave flagged pairs out, but say so."""
    own = SCOPES[scope]
    merging = "origin" not in own
    keys = ", ".join(own) or "one"
    kept = "quality <> 'flagged'" if merging else "TRUE"
    values = f"""
        (SELECT v.*, 1 AS one, us - coalesce(offset_us, 0) AS corrected
         FROM delay_values v JOIN pairs USING (origin, destination) WHERE {kept})
    """
    columns = ", ".join(f"t.{key}" if key in own else f"NULL AS {key}" for key in FLOW)
    of_pair = "NULL" if merging else "max({})"
    return f"""
    SELECT '{scope}' AS scope, {columns}, t.publications, q.* EXCLUDE ({keys}),
        t.mean, t.least, t.greatest, t.floor_us, t.offset_us, t.quality
    FROM (
        SELECT {keys},
            coalesce(sum(publications) FILTER ({kept}), 0) AS publications,
            sum(sum_us - coalesce(offset_us, 0) * publications) FILTER ({kept})
                / nullif(sum(publications) FILTER ({kept}), 0) AS mean,
            min(min_us - coalesce(offset_us, 0)) FILTER ({kept}) AS least,
            max(max_us - coalesce(offset_us, 0)) FILTER ({kept}) AS greatest,
            {of_pair.format("floor_us")} AS floor_us,
            {of_pair.format("coalesce(offset_us, 0)")} AS offset_us,
            CASE max(CASE quality WHEN 'ok' THEN 1 WHEN 'corrected' THEN 2 ELSE 3 END)
                WHEN 1 THEN 'ok' WHEN 2 THEN 'corrected' ELSE 'flagged' END AS quality
        FROM (SELECT *, broker AS destination, 1 AS one FROM
            (SELECT * EXCLUDE (destination) FROM deliveries)) d
        JOIN pairs USING (origin, destination) GROUP BY {keys}
    ) t LEFT JOIN {quantiles(values, keys, "corrected", "weight", THREE)} q USING ({keys})
    """


_SPAN_S = "(SELECT (max(at_us + window_ms * 1000) - min(at_us)) / 1e6 FROM records)"

QUERIES: dict[str, str] = {
    "delay": " UNION ALL ".join(_delay_of(scope) for scope in SCOPES),
    "delay_over_time": f"""
        SELECT start_us, origin, destination, strategy, n,
            delay_us_p50 - coalesce(offset_us, 0), delay_us_p95 - coalesce(offset_us, 0),
            delay_us_p99 - coalesce(offset_us, 0), quality
        FROM {
        quantiles(
            "(SELECT *, at_us // 10000000 * 10000000 AS start_us FROM delay_values)",
            "start_us, origin, destination, strategy",
            "us",
            "weight",
            THREE,
        )
    }
        JOIN (SELECT at_us // 10000000 * 10000000 AS start_us, origin, broker AS destination,
                strategy, sum(publications) AS n FROM deliveries GROUP BY 1, 2, 3, 4)
            USING (start_us, origin, destination, strategy)
        JOIN pairs USING (origin, destination)
    """,
    "overhead": """
        WITH sent AS (FROM control WHERE direction = 'out'),
        whole AS (
            SELECT (SELECT count(DISTINCT broker) FROM records) AS brokers,
                (SELECT count(DISTINCT (least(broker, neighbour), greatest(broker, neighbour)))
                    FROM links) AS links,
                (SELECT coalesce(sum(announcements), 0) FROM announcements) AS announcements,
                (SELECT coalesce(sum(messages), 0) FROM sent) AS messages,
                (SELECT coalesce(sum(messages), 0) FROM sent WHERE kind = 'core_ann') AS floods,
                (SELECT coalesce(sum(bytes), 0) FROM sent) AS control,
                (SELECT coalesce(sum(bytes_out), 0) FROM links) AS data,
                (SELECT coalesce(sum(publications_out), 0) FROM links) AS copies,
                (SELECT coalesce(sum(duplicate_publications), 0) FROM links) AS again
        ), ways AS (
            SELECT strategy, redundancy, sum(publications) AS delivered,
                count(*) OVER (PARTITION BY strategy) AS alike, count(*) OVER () AS ways
            FROM deliveries GROUP BY strategy, redundancy
        ), offers AS (SELECT strategy, sum(publications) AS n FROM offered GROUP BY strategy),
        told AS (
            SELECT NULL AS strategy, NULL AS redundancy, 1 AS ways,
                (SELECT coalesce(sum(n), 0) FROM offers) AS offered,
                (SELECT coalesce(sum(delivered), 0) FROM ways) AS delivered
            UNION ALL
            SELECT strategy, redundancy, ways, CASE WHEN alike = 1 THEN n END, delivered
            FROM ways LEFT JOIN offers USING (strategy)
        )
        SELECT strategy, redundancy, brokers, links,
            CASE WHEN ways = 1 THEN announcements END, CASE WHEN ways = 1 THEN messages END,
            CASE WHEN ways = 1 THEN floods / nullif(announcements, 0) END, 2 * links,
            CASE WHEN ways = 1 THEN control END, CASE WHEN ways = 1 THEN data END,
            CASE WHEN ways = 1 THEN control / nullif(data, 0) END, offered, delivered,
            CASE WHEN ways = 1 THEN copies END,
            CASE WHEN ways = 1 THEN copies / nullif(delivered, 0) END,
            CASE WHEN ways = 1 THEN again END
        FROM told, whole
    """,
    "control_by_kind": """
        SELECT broker, neighbour, kind, sum(messages), sum(bytes) FROM control
        WHERE direction = 'out' GROUP BY ALL
    """,
    "events": """
        SELECT at_us, broker, kind, neighbour, filter, subject, detail, value
        FROM events
    """,
    "convergence": """
        WITH marked AS (
            SELECT at_us, kind, broker,
                coalesce(at_us - lag(at_us) OVER w > 3000000, TRUE) AS begins
            FROM events WHERE kind IN ('link_up', 'link_down', 'core_changed', 'mesh_joined',
                'mesh_left', 'parent_changed', 'broker_up', 'broker_down', 'controller_changed',
                'takeover', 'agent_started', 'agent_stopped')
            WINDOW w AS (ORDER BY at_us)
        ), told AS (
            SELECT *, count(*) FILTER (begins) OVER (ORDER BY at_us, begins DESC) AS story
            FROM marked
        )
        SELECT arg_min(kind, (at_us, kind, broker)), min(at_us),
            max(at_us), max(at_us) - min(at_us), count(DISTINCT broker)
        FROM told GROUP BY story
    """,
    "brokers": """
        SELECT a.broker, max(clients), max(filters), sum(publications_in), sum(publications_out),
            sum(delivered), sum(no_route), sum(dropped), sum(cpu_us) / (sum(window_ms) * 1000),
            max(rss_bytes), max(send_queue_bytes), max(custody_bytes), max(loop_lag_us),
            any_value(lives) - 1, any_value(heard),
            arg_max(name, (at_us + window_ms * 1000, name))
        FROM agents a JOIN (SELECT broker, count(DISTINCT epoch) AS lives,
                max(at_us + window_ms * 1000) AS heard FROM records GROUP BY 1) l
            ON a.broker = l.broker
        GROUP BY a.broker
    """,
    "links": f"""
        WITH ends AS (SELECT *, least(broker, neighbour) AS a, greatest(broker, neighbour) AS b,
            1 AS one, CASE WHEN capacity > 0 THEN bytes_out END AS known,
            least(1099511627776, floor(capacity::DOUBLE * window_ms / 8000.0)) AS room FROM links)
        SELECT a, b, sum(up) / count(*), any_value(p50), min(round_trip_us),
            sum(bytes_out) FILTER (broker = a), sum(bytes_out) FILTER (broker = b),
            sum(publications_out) FILTER (broker = a), sum(publications_out) FILTER (broker = b),
            sum(duplicates), max(queue_bytes),
            max(capacity) FILTER (broker = a), max(capacity) FILTER (broker = b),
            sum(known) FILTER (broker = a) / nullif(sum(room) FILTER (broker = a), 0),
            sum(known) FILTER (broker = b) / nullif(sum(room) FILTER (broker = b), 0)
        FROM ends LEFT JOIN {
        quantiles(
            "(FROM ends WHERE round_trip_us IS NOT NULL)",
            "a, b",
            "round_trip_us",
            "one",
            {"p50": 50},
        )
    } USING (a, b)
        GROUP BY a, b
    """,
    "flows": """
        SELECT broker, flow, sum(bytes) * 8000 / sum(window_ms), max(rate), sum(bytes),
            sum(planned * window_ms) / sum(window_ms)
        FROM (SELECT * EXCLUDE (bytes), rate * window_ms // 8000 AS bytes FROM flows)
        GROUP BY broker, flow
        QUALIFY row_number() OVER (PARTITION BY broker ORDER BY sum(bytes) DESC, flow) <= 64
    """,
    "traffic_matrix": f"""
        SELECT filter, origin, broker, sum(publications), sum(bytes),
            sum(publications) / {_SPAN_S} FROM arrived GROUP BY 1, 2, 3
    """,
    "clocks": "FROM clocks",
    "clients": f"""
        WITH told AS (SELECT publisher_broker AS origin, destination, unnest(delays_us) AS us,
            1 AS one FROM clients)
        SELECT origin, destination, n, delay_us_p50, delay_us_p95, delay_us_p99, mean, least,
            greatest
        FROM (SELECT origin, destination, count(*) AS n, sum(us) / count(*) AS mean,
                min(us) AS least, max(us) AS greatest FROM told GROUP BY 1, 2)
        JOIN {quantiles("told", "origin, destination", "us", "one", THREE)}
            USING (origin, destination)
    """,
    "span": """
        SELECT r.federation, min(at_us), max(at_us + window_ms * 1000),
            count(*), count(DISTINCT broker),
            count(DISTINCT (broker, epoch)) - count(DISTINCT broker),
            (SELECT coalesce(sum(coalesce(value, 1)), 0) FROM events e
                WHERE kind IN ('collector_gap', 'batches_missed')
                AND e.federation = r.federation),
            (SELECT count(*) FROM lines l WHERE l.federation = r.federation) - count(*)
        FROM records r GROUP BY r.federation
    """,
}
"""Report table to query; its columns are those of the schema, in order."""
