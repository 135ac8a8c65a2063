"""The chapters on who sends to whom, and on how far the figures may be believed."""

from collections import Counter
from typing import Any

from federator_analytics.digest.tables import Row, Tables
from federator_analytics.digest.units import count, size, some
from federator_analytics.report.parts import (
    Block,
    Cell,
    Section,
    Tile,
    grid,
    heat_map,
    left_out,
    table,
)
from federator_analytics.report.vega import bars

FILTERS_SHOWN = 12
BAD_LINES_SHOWN, RAW_SHOWN = 50, 200
"""Lines in quarantine that are shown, and characters of each."""
NAME_MAX = 60
"""Characters of a filter on an axis; the tables have it whole."""


def traffic_section(tables: Tables, summary: dict[str, Any]) -> Section:
    """The traffic matrix: filter by origin by destination."""
    traffic = summary["traffic"]
    rows = sorted(tables["traffic_matrix"], key=lambda row: (-row["publications"], row["filter"]))
    if not rows:
        return Section(
            "traffic", "Traffic", "Who sends how much to whom.", absent="No traffic was counted."
        )
    pairs: Counter[tuple[int, int]] = Counter()
    sizes: Counter[tuple[int, int]] = Counter()
    filters: Counter[str] = Counter()
    for row in rows:
        pair = row["origin"], row["destination"]
        pairs[pair] += row["publications"]
        sizes[pair] += row["bytes"]
        filters[row["filter"]] += row["publications"]
    cells = {
        pair: Cell(
            pairs[pair],
            count(pairs[pair]),
            f"from {pair[0]} to {pair[1]}: {count(pairs[pair])} publications, {size(sizes[pair])}",
        )
        for pair in pairs
    }
    data = [
        (name[:NAME_MAX], number, f"{name[:NAME_MAX]}: {count(number)} publications")
        for name, number in filters.most_common(FILTERS_SHOWN)
    ]
    return Section(
        "traffic",
        "Traffic",
        "Who sends how much to whom: the matrix that planning reads. A publication that matches "
        "several filters counts under each.",
        [
            Block(
                "From broker to broker",
                "Publications from origin (row) to destination (column); the stronger the colour, "
                "the more." + left_out(cells),
                heat_map(cells, "Publications from origin to destination"),
                is_wide=True,
            ),
            Block(
                "Busiest filters",
                "Publications over all pairs.",
                bars(data, "Publications by filter", axis="publications"),
            ),
            _costs(tables),
            table(
                "Filter by filter",
                "The busiest first.",
                "traffic_matrix",
                rows,
                "filter, from: origin, to: destination, publications, bytes",
                "per second: rate_per_s",
            ),
        ],
        [
            Tile("publications", count(traffic["publications"]), size(traffic["bytes"])),
            Tile("filters", count(traffic["filters"])),
            Tile("pairs", count(len(pairs)), "of brokers that spoke"),
        ],
    )


def _costs(tables: Tables) -> Block | None:
    """Between what bounds the bytes lie that a filter took on all links: no table has them by link.

    Each destination takes one copy from some link; and at most each copy goes alone all the way.
    """
    links: Counter[tuple[int, int]] = Counter()
    told: Counter[tuple[int, int]] = Counter()
    for row in tables["delay"]:
        if row["scope"] == "pair_hops":
            links[row["origin"], row["destination"]] += row["hops"] * row["publications"]
            told[row["origin"], row["destination"]] += row["publications"]
    costs: dict[str, dict[str, Any]] = {}
    for row in tables["traffic_matrix"]:
        pair = row["origin"], row["destination"]
        if pair[0] == pair[1]:
            continue
        cost = costs.setdefault(
            row["filter"], {"filter": row["filter"], "pairs": 0, "bytes_least": 0, "bytes_most": 0}
        )
        cost["pairs"] += 1
        cost["bytes_least"] += row["bytes"]
        if told[pair] and cost["bytes_most"] is not None:
            cost["bytes_most"] += row["bytes"] * links[pair] // told[pair]
        else:
            cost["bytes_most"] = None
    return table(
        "What filters cost",
        "Bytes on all links together, the most first. At least: each destination took one copy. At "
        "most: each copy went alone over as many links as its pair's publications did; copies that "
        "share links cost less, redundant parents more.",
        "traffic_matrix",
        sorted(costs.values(), key=lambda row: (-row["bytes_least"], row["filter"])),
        "filter, pairs, at least: bytes_least, at most: bytes_most",
        shown=FILTERS_SHOWN,
        is_wide=False,
        is_open=True,
    )


def quality_section(tables: Tables, summary: dict[str, Any]) -> Section:
    """Clocks that disagree, records that could not be read, batches that never came."""
    quality, span = summary["quality"], summary["span"]
    doubted = quality["clocks"].get("flagged", 0)
    tiles = [
        Tile("records read", count(span["records"] if span else 0)),
        Tile.of_bad("unreadable", quality["quarantined"], "records, in quarantine", "look"),
        Tile.of_bad("clocks in doubt", doubted, "pairs of brokers", "look"),
        Tile.of_bad("never came", quality["dropped_batches"], "batches of a second", "look"),
    ]
    return Section(
        "quality",
        "How far to believe this",
        "Delays compare clocks of two machines. Where the least delays there and back show that "
        "clocks disagree, the difference is taken off; where nothing tells, the delay is marked "
        "and left out of every merged figure.",
        [_clocks(tables), *_quarantine(tables, quality)],
        tiles,
    )


def _clocks(tables: Tables) -> Block | None:
    order = {"flagged": 0, "corrected": 1}
    rows = sorted(
        tables["clocks"],
        key=lambda row: (order.get(row["verdict"], 2), -abs(row["offset_us"] or 0)),
    )
    return table(
        "Clocks",
        "Each pair of brokers: by how much the second clock is ahead of the first.",
        "clocks",
        rows,
        ("pair", lambda row: f"{row['a']} \N{EN DASH} {row['b']}"),
        "offset: offset_us, least there: one_way_min_ab_us, least back: one_way_min_ba_us",
        "windows, verdict",
        is_open=len(rows) <= FILTERS_SHOWN,
    )


def _quarantine(tables: Tables, quality: dict[str, Any]) -> list[Block | None]:
    reasons = quality["quarantined_by_reason"]
    if not reasons:
        return []
    rows: list[Row] = [{"reason": reason, "records": n} for reason, n in reasons.items()]
    data = [
        (reason[:NAME_MAX], n, f"{reason}: {some(n, 'record')}")
        for reason, n in list(reasons.items())[:FILTERS_SHOWN]
    ]
    return [
        Block(
            "Why records were unreadable",
            "They changed no other figure.",
            bars(data, "Unreadable records by reason", axis="records"),
            grid=grid("quarantine_counts", rows, "reason, records"),
        ),
        Block(
            "Some of them",
            "Where they stand and how they begin.",
            grid=grid(
                "quarantine",
                tables["quarantine"],
                "file, line, reason",
                ("begins", lambda row: str(row["raw"])[:RAW_SHOWN]),
                shown=BAD_LINES_SHOWN,
            ),
            is_wide=True,
        ),
    ]
