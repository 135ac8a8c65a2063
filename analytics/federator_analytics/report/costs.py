"""The chapters on what carrying costs, and on what was lost or came out of order."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from federator_analytics.digest.figures import COMPARED
from federator_analytics.digest.tables import Row, Tables
from federator_analytics.digest.units import count, percent, ratio, size
from federator_analytics.report import vega
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

KINDS_SHOWN = 12


def overhead_section(tables: Tables, summary: dict[str, Any]) -> Section:
    """Control against the bound of the paper and against data; copies and duplicates."""
    rows = sorted(
        tables["overhead"], key=lambda row: (row["strategy"] or "", row["redundancy"] or 0)
    )
    overall: Row = summary["overhead"]["overall"] or {}
    cost, bound = overall.get("control_messages_per_announcement"), overall.get("bound_2l")
    return Section(
        "overhead",
        "Overhead",
        "What agents say to each other beside the data, and how often the data itself is copied. "
        "Announcing a core costs at most two messages per link under equal delays.",
        [announcements_block(rows), kinds_block(tables), _strategies(rows)],
        [
            Tile(
                "control per announcement",
                ratio(cost),
                f"messages; the bound is {count(bound)}",
                "look" if cost and bound and cost > bound else "",
            ),
            Tile(
                "control per data byte",
                ratio(overall.get("control_bytes_per_data_byte")),
                f"{size(overall.get('control_bytes'))} beside {size(overall.get('data_bytes'))}",
            ),
            Tile(
                "copies per publication",
                ratio(overall.get("copies_per_publication")),
                f"{count(overall.get('data_copies'))} over links",
            ),
            Tile(
                "duplicates suppressed",
                count(overall.get("duplicates_suppressed")),
                "arrived a second time and went no further",
            ),
        ],
        absent="" if rows else "Nothing is known of control traffic.",
    )


def _name(row: Row) -> str:
    if row["strategy"] is None:
        return "all"
    return f"{row['strategy']}, redundancy {row['redundancy']}"


def announcements_block(rows: Sequence[Row]) -> Block | None:
    """Control messages per announcement beside the bound of two per link."""
    known = [row for row in rows if row["control_messages_per_announcement"] is not None]
    if not known:
        return None
    data = [
        {
            "name": _name(row),
            "value": row["control_messages_per_announcement"],
            "bound": row["bound_2l"],
            "tip": f"{_name(row)}: {ratio(row['control_messages_per_announcement'])} messages per "
            f"announcement, bound {count(row['bound_2l'])}",
        }
        for row in known
    ]
    axis = {"tickCount": 5}
    cost = vega.measured("value", title="control messages per announcement", axis=axis)
    bound = vega.measured("bound", axis=axis)
    spec: vega.Spec = {
        "encoding": {"y": vega.named("name", sort=None)},
        "layer": [
            {
                "mark": {"type": "bar", "color": vega.BLUE, "height": {"band": 0.45}},
                "encoding": {"x": cost, **vega.TIP},
            },
            {
                "mark": {"type": "tick", "color": vega.VERMILION, "thickness": 3},
                "encoding": {"x": bound, **vega.TIP},
            },
        ],
    }
    return Block(
        "Against the bound",
        "Control messages per announcement; the red line is the bound, two per link.",
        vega.draw(
            spec,
            data,
            "Control messages per announcement against two per link",
            width=vega.SMALL,
            height=max(60, 40 * len(data)),
        ),
    )


def kinds_block(tables: Tables) -> Block | None:
    """Control bytes by kind of message."""
    messages: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for row in tables["control_by_kind"]:
        messages[row["kind"]] += row["messages"]
        sizes[row["kind"]] += row["bytes"]
    if not messages:
        return None
    kinds = sorted(sizes, key=lambda kind: (-sizes[kind], kind))
    data = [
        (kind, sizes[kind], f"{kind}: {size(sizes[kind])} in {count(messages[kind])} messages")
        for kind in kinds[:KINDS_SHOWN]
    ]
    return Block(
        "What control says",
        "Bytes of control messages by kind, over every link.",
        vega.bars(data, "Control bytes by kind", axis="bytes"),
        grid=grid(
            "control_by_kind",
            [{"kind": kind, "messages": messages[kind], "bytes": sizes[kind]} for kind in kinds],
            "kind, messages, bytes",
            ("bytes each", lambda row: ratio(row["bytes"] / max(row["messages"], 1))),
        ),
    )


def _strategies(rows: list[Row]) -> Block | None:
    return table(
        "Per strategy and redundancy",
        "Control traffic has no strategy: where several share a federation, it stands under all.",
        "overhead",
        rows,
        ("", _name),
        "announcements, control_messages",
        "per announcement: control_messages_per_announcement, 2l: bound_2l",
        "control_bytes, data_bytes",
        "offered: publications_offered, delivered: publications_delivered",
        "copies: data_copies, copies each: copies_per_publication",
        "duplicates: duplicates_suppressed",
        is_open=True,
    )


def loss_section(tables: Tables, summary: dict[str, Any]) -> Section:
    """Offered against arrived, of what destinations owed."""
    loss = summary["loss"]
    offered = sum(row["offered"] for row in loss["by_qos"])
    share = loss["missing"] / offered if offered else None
    tiles = [
        Tile.of_bad("missing", loss["missing"], f"of {count(offered)} ({percent(share)})"),
        Tile(
            "out of order", count(loss["out_of_order"]), "arrived after later ones of their origin"
        ),
        Tile(
            "compared", count(loss["compared"]), f"filter ways; {count(loss['not_compared'])} not"
        ),
        Tile("under way", count(loss["under_way"]), "may still arrive"),
        Tile("surplus", count(loss["surplus"]), "came again, after a restart or a move"),
    ]
    return Section(
        "loss",
        "Loss and order",
        "Publications offered at an origin under a filter against those that arrived at a "
        "destination: of what was made while the destination's clients wanted the filter, and is "
        "settled.",
        [_missing(tables), _loss_table(tables)],
        tiles,
        absent="" if tables["loss"] else "Nothing was offered to another broker.",
    )


def _missing(tables: Tables) -> Block | None:
    offered: Counter[tuple[int, int]] = Counter()
    missing: Counter[tuple[int, int]] = Counter()
    for row in tables["loss"]:
        if row["note"] == COMPARED:
            pair = row["origin"], row["destination"]
            offered[pair] += row["offered"]
            missing[pair] += row["missing"]
    if not any(missing.values()):
        return None
    cells = {}
    for (origin, to), number in offered.items():
        lost = missing[origin, to]
        tip = f"from {origin} to {to}: {count(lost)} of {count(number)} missing"
        cells[origin, to] = Cell(lost, count(lost), tip)
    return Block(
        "Where it was lost",
        "Publications missing from origin (row) to destination (column)." + left_out(cells),
        heat_map(cells, "Publications missing from origin to destination"),
        is_wide=True,
    )


def _loss_table(tables: Tables) -> Block | None:
    rows = sorted(tables["loss"], key=lambda row: (-row["missing"], row["filter"], row["origin"]))
    return table(
        "Filter by filter",
        "The most missing first.",
        "loss",
        rows,
        "filter, from: origin, to: destination, QoS: qos",
        "offered, arrived, missing, surplus, under way: under_way, not owed: not_owed",
        "out_of_order, note",
    )
