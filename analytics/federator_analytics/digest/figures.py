"""The figures of a report: what summary.json holds, and what the dashboard quotes; and in words: is
the federation healthy, and what is worst.

What makes figures takes the tables and returns plain JSON values. Durations are whole microseconds,
and None where nothing is known. Each rule of the words looks at one thing, says one sentence, and
says how bad it is: ``bad`` is a promise broken or a part that is dead; ``look`` deserves a look;
``note`` is good to know.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from statistics import median_low
from typing import Any, Literal

from federator_analytics.digest.broker import name_of
from federator_analytics.digest.liveness import liveness
from federator_analytics.digest.loads import fullest_ways, heaviest_flows
from federator_analytics.digest.tables import GREATEST, ROWS_MAX, Row, Tables
from federator_analytics.digest.units import bits, count, duration, percent, ratio, some

Figures = dict[str, Any]
Weight = Literal["bad", "look", "note"]

LOOP_LAG_LOOK_US = 250_000
"""An agent that turns to its sockets a quarter of a second late adds that to every delay."""
LINK_FULL_LOOK = 0.95
"""A link that carries so much of what it can on average has queues at times."""
QUARANTINE_BAD_SHARE = 0.01
"""A share of unreadable records from which on the other figures may be wrong."""
SETTLE_LOOK_US = 10_000_000
"""Settling slower than this is slower than silence of 3 s and three announcements would explain."""
_OPERATORS = ("agent_started", "agent_stopped")
"""Settling lasts as long as an operator takes to start and stop agents."""
_ORDER = {"bad": 0, "look": 1, "note": 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence, how bad it is, and the section of the report that shows it."""

    weight: Weight
    section: str
    text: str


def findings(summary: Figures) -> list[Finding]:
    """Everything worth saying about a summary, the worst first."""
    found = [finding for rule in _RULES for finding in rule(summary)]
    return sorted(found, key=lambda finding: _ORDER[finding.weight])


def verdict(found: list[Finding]) -> tuple[str, str]:
    """``unhealthy``, ``attention`` or ``healthy``, and the sentence that says so."""
    bad = sum(finding.weight == "bad" for finding in found)
    look = sum(finding.weight == "look" for finding in found)
    if bad:
        return "unhealthy", f"Not healthy: {some(bad, 'thing')} went wrong."
    if look:
        return "attention", f"It works; {some(look, 'thing wants', 'things want')} a look."
    return "healthy", "Healthy: nothing was lost, nothing is down, nothing is strained."


def _loss(summary: Figures) -> Iterator[Finding]:
    loss = summary["loss"]
    for row in loss["by_qos"]:
        if row["missing"] > 0:
            share = percent(row["missing"] / row["offered"]) if row["offered"] else ""
            text = (
                f"{count(row['missing'])} of {count(row['offered'])} publications of QoS "
                f"{row['qos']} did not arrive ({share})."
            )
            yield Finding("bad" if row["qos"] > 0 else "look", "loss", text)
    if loss["under_way"]:
        text = (
            f"Under way: {some(loss['under_way'], 'publication')}; not lost, but nothing made "
            "later has come either."
        )
        yield Finding("note", "loss", text)
    if loss["surplus"]:
        text = (
            f"Twice: {some(loss['surplus'], 'publication')} came again, after a restart or for "
            "clients that moved."
        )
        yield Finding("note", "loss", text)
    if loss["out_of_order"]:
        text = f"Out of order: {some(loss['out_of_order'], 'publication')} came after later ones."
        yield Finding("note", "loss", text)


def _dead(summary: Figures) -> Iterator[Finding]:
    load = summary["load"]
    if load["dead"]:
        named = ", ".join(map(str, load["dead"][:10]))
        word = "Broker" if len(load["dead"]) == 1 else f"{len(load['dead'])} brokers:"
        verb = "is" if len(load["dead"]) == 1 else "are"
        yield Finding("bad", "topology", f"{word} {named} {verb} down.")
    if load["links_down"]:
        named = ", ".join(f"{a}\N{EN DASH}{b}" for a, b in load["links_down"][:10])
        text = f"Down: {some(len(load['links_down']), 'link')}, {named}."
        yield Finding("bad", "topology", text)
    if load["stopped"] and len(load["stopped"]) + len(load["dead"]) < load["brokers"]:
        named = ", ".join(map(str, load["stopped"][:10]))
        text = (
            f"Told to stop while others went on: {some(len(load['stopped']), 'broker')}, {named}."
        )
        yield Finding("look", "topology", text)
    if load["links_ever_down"]:
        worst = load["links_ever_down"][0]
        text = (
            f"Lost at some time: {some(len(load['links_ever_down']), 'link')} of "
            f"{count(load['links'])}; {worst['a']}\N{EN DASH}{worst['b']} was up "
            f"{percent(worst['up_share'])} of the time that its ends reported."
        )
        yield Finding("look", "topology", text)


def _strain(summary: Figures) -> Iterator[Finding]:
    load = summary["load"]
    full = [way for way in load["fullest_links"] if way["load"] >= LINK_FULL_LOOK]
    if full:
        worst = full[0]
        text = (
            f"The link from broker {worst['sender']} to {worst['receiver']} carried "
            f"{percent(worst['load'])} of the {bits(worst['capacity'])} that it can."
        )
        yield Finding("look", "topology", text)
    lag = load["loop_lag_us_max"]
    if lag and lag["value"] > LOOP_LAG_LOOK_US:
        text = (
            f"The agent of broker {lag['broker']} was busy for {duration(lag['value'])} at a time."
        )
        yield Finding("look", "brokers", text)
    if load["dropped"]:
        yield Finding("bad", "brokers", f"Agents dropped {count(load['dropped'])} publications.")
    if load["crashes"]:
        text = f"Not told to stop, yet started again: {some(load['crashes'], 'agent')}."
        yield Finding("look", "brokers", text)
    told = (summary["span"] or {}).get("restarts", 0) - load["crashes"]
    if told > 0:
        yield Finding("note", "brokers", f"Told to stop and started again: {some(told, 'agent')}.")


def _overhead(summary: Figures) -> Iterator[Finding]:
    rows = [summary["overhead"]["overall"], *summary["overhead"]["by_strategy"]]
    for row in rows:
        cost = row and row["control_messages_per_announcement"]
        if cost and cost > row["bound_2l"]:
            who = f"of the strategy {row['strategy']} " if row["strategy"] else ""
            text = (
                f"An announcement {who}cost {ratio(cost)} control messages, above the bound of "
                f"twice the links ({count(row['bound_2l'])})."
            )
            yield Finding("look", "overhead", text)
            return


def _settling(summary: Figures) -> Iterator[Finding]:
    slow = [
        row
        for row in summary["convergence"]["by_what"]
        if row["max_us"] > SETTLE_LOOK_US and row["what"] not in _OPERATORS
    ]
    if slow:
        row = max(slow, key=lambda row: row["max_us"])
        text = f"After {row['what'].replace('_', ' ')} it took {duration(row['max_us'])} to settle."
        yield Finding("look", "convergence", text)


def _slowest(summary: Figures) -> Iterator[Finding]:
    for row in summary["delay"]["slowest_pairs"][:1]:
        floor = f" (the links alone take {duration(row['floor_us'])})" if row["floor_us"] else ""
        text = (
            f"The slowest way is from broker {row['origin']} to {row['destination']}: "
            f"1 in 100 publications takes longer than {duration(row['delay_us_p99'])}{floor}."
        )
        yield Finding("note", "delay", text)


def _belief(summary: Figures) -> Iterator[Finding]:
    quality, span = summary["quality"], summary["span"]
    if quality["quarantined"]:
        everything = quality["quarantined"] + (span["records"] if span else 0)
        share = quality["quarantined"] / everything
        reason = next(iter(quality["quarantined_by_reason"]))
        text = (
            f"Unreadable: {some(quality['quarantined'], 'record')} ({percent(share)}), mostly "
            f"because: {reason}."
        )
        yield Finding("bad" if share > QUARANTINE_BAD_SHARE else "look", "quality", text)
    if quality["dropped_batches"]:
        text = (
            f"{count(quality['dropped_batches'])} batches of records never came: figures are low."
        )
        yield Finding("look", "quality", text)
    by_quality = summary["delay"]["pairs_by_quality"]
    flagged, corrected = by_quality.get("flagged", 0), by_quality.get("corrected", 0)
    if flagged:
        text = (
            f"Of {some(summary['delay']['pairs'], 'pair')} the delays of {count(flagged)} cannot "
            "be believed: clocks disagree, and no traffic both ways tells by how much."
        )
        yield Finding("look", "quality", text)
    if corrected:
        text = f"Clocks disagreed: the delays of {some(corrected, 'pair')} were corrected."
        yield Finding("note", "quality", text)
    if quality["tables_cut"]:
        told = (_shown_of(name, quality["whole_since"][name]) for name in quality["tables_cut"])
        text = f"Longer than is read, and shown is: {'; '.join(told)}."
        yield Finding("look", "quality", text)


def _shown_of(table: str, since: str | None) -> str:
    """What was read of a table that has more rows than are read."""
    if since is not None:
        return (
            f"of {table} what is of {datetime.fromisoformat(since):%Y-%m-%d %H:%M:%S} UTC or later"
        )
    most = f" with the most {GREATEST[table]}" if table in GREATEST else ""
    return f"of {table} {count(ROWS_MAX)} rows{most}"


_RULES: tuple[Callable[[Figures], Iterator[Finding]], ...] = (
    _dead, _loss, _strain, _settling, _overhead, _belief, _slowest,
)  # fmt: skip


COMPARED = "compared"
"""The note of a row of the table ``loss`` of which something was compared."""
WORST = 5
"""The number of worst pairs, links or filters that are named."""

_QUANTILES = ("delay_us_p50", "delay_us_p95", "delay_us_p99")
_SPREAD = (*_QUANTILES, "delay_us_mean", "delay_us_min", "delay_us_max")


def delay_rows(tables: Tables, scope: str) -> list[Row]:
    """The rows of one scope over every QoS, and over every strategy unless it is the scope."""
    rows = [row for row in tables["delay"] if row["scope"] == scope]
    merged = [
        row for row in rows
        if row["qos"] is None and (scope == "strategy" or row["strategy"] is None)
    ]  # fmt: skip
    return merged or rows


def hop_rows(tables: Tables) -> list[Row]:
    """The rows of scope ``hops``, fewest first; their floor is the mean over what came so far.

    A floor is of a pair: publications weigh the floors of the pairs that they travelled between.
    """
    floors: Counter[int] = Counter()
    weights: Counter[int] = Counter()
    for row in tables["delay"]:
        if row["scope"] == "pair_hops" and row["floor_us"] and row["quality"] != "flagged":
            floors[row["hops"]] += row["floor_us"] * row["publications"]
            weights[row["hops"]] += row["publications"]
    means = {hops: floors[hops] // weight for hops, weight in weights.items() if weight}
    rows = _sorted(delay_rows(tables, "hops"), "hops")
    return [{**row, "floor_us": means.get(row["hops"])} for row in rows]


def delay_figures(tables: Tables) -> Figures:
    """Delay over all, by strategy and by hops, and the pairs that wait longest."""
    overall = next(iter(delay_rows(tables, "all")), None)
    pairs = delay_rows(tables, "pair")
    known = [
        row for row in pairs
        if row["quality"] != "flagged" and row["delay_us_p99"] is not None
    ]  # fmt: skip
    slowest = sorted(known, key=lambda row: (-row["delay_us_p99"], row["origin"]))
    return {
        "publications": overall["publications"] if overall else 0,
        **{key: overall[key] if overall else None for key in _SPREAD},
        "quality": overall["quality"] if overall else None,
        "pairs": len(pairs),
        "pairs_by_quality": dict(sorted(Counter(row["quality"] for row in pairs).items())),
        "slowest_pairs": [
            _chosen(row, "origin", "destination", "publications", *_QUANTILES, "floor_us")
            for row in slowest[:WORST]
        ],
        "by_strategy": [
            _chosen(row, "strategy", "publications", *_QUANTILES)
            for row in _sorted(delay_rows(tables, "strategy"), "strategy")
        ],
        "by_hops": [
            _chosen(row, "hops", "publications", *_QUANTILES, "floor_us")
            for row in hop_rows(tables)
        ],
    }


def overhead_figures(tables: Tables) -> Figures:
    """What carrying publications costs: over all, then per strategy and redundancy."""
    rows = [dict(row) for row in tables["overhead"]]
    overall = [row for row in rows if row["strategy"] is None]
    return {
        "overall": overall[0] if overall else (rows[0] if len(rows) == 1 else None),
        "by_strategy": _sorted([row for row in rows if row["strategy"] is not None], "strategy"),
    }


def loss_figures(tables: Tables) -> Figures:
    """What was owed and did not arrive; what is under way may still."""
    compared = [row for row in tables["loss"] if row["note"] == COMPARED]
    by_qos: dict[int, Counter[str]] = defaultdict(Counter)
    for row in compared:
        by_qos[row["qos"]].update({key: row[key] for key in ("offered", "arrived", "missing")})
    order = {  # out_of_order is of the pair and QoS, and stands on each of its filters
        (row["origin"], row["destination"], row["qos"]): row["out_of_order"]
        for row in tables["loss"]
    }
    lost = [row for row in compared if row["missing"] > 0]
    return {
        "compared": len(compared),
        "not_compared": len(tables["loss"]) - len(compared),
        "by_qos": [{"qos": qos, **by_qos[qos]} for qos in sorted(by_qos)],
        "missing": sum(row["missing"] for row in compared),
        "surplus": sum(row["surplus"] for row in compared),
        "under_way": sum(row["under_way"] for row in tables["loss"]),
        "out_of_order": sum(order.values()),
        "worst": [
            _chosen(row, "filter", "origin", "destination", "qos", "offered", "missing")
            for row in sorted(lost, key=lambda row: -row["missing"])[:WORST]
        ],
    }


def convergence_figures(tables: Tables) -> Figures:
    """How often the federation had to settle, and how long it took, by what happened."""
    durations: dict[str, list[int]] = defaultdict(list)
    for row in tables["convergence"]:
        durations[row["what"]].append(row["duration_us"])
    by_what: list[Figures] = [
        {"what": what, "times": len(found), "median_us": median_low(found), "max_us": max(found)}
        for what, found in sorted(durations.items())
    ]
    return {
        "times": sum(len(found) for found in durations.values()),
        "max_us": max((entry["max_us"] for entry in by_what), default=None),
        "by_what": by_what,
        "events": dict(sorted(Counter(row["kind"] for row in tables["events"]).items())),
    }


def load_figures(tables: Tables) -> Figures:
    """Brokers and links: how many, which are dead, and the highest load of any."""
    brokers, links = tables["brokers"], tables["links"]
    state = liveness(tables)
    return {
        "brokers": len(state.brokers),
        "names": {str(int(id)): name_of(id) for id in state.brokers if name_of(id)},
        "dead": state.of("down"),
        "stopped": state.of("stopped"),
        "links": len(state.links),
        "links_down": [list(pair) for pair in state.cut()],
        "links_ever_down": [
            _chosen(row, "a", "b", "up_share")
            for row in sorted(links, key=lambda row: row["up_share"])
            if (row["a"], row["b"]) in state.lost
        ],
        "fullest_links": fullest_ways(links)[:WORST],
        "heaviest_flows": [
            _chosen(row, "origin", "flow", "rate", "rate_max", "bytes", "planned_share")
            for row in heaviest_flows(tables["flows"])[:WORST]
        ],
        "cpu_share_max": _highest(brokers, "cpu_share", "broker"),
        "rss_bytes_max": _highest(brokers, "rss_bytes_max", "broker"),
        "loop_lag_us_max": _highest(brokers, "loop_lag_us_max", "broker"),
        "crashes": crashes(tables),
        "dropped": sum(row["dropped"] for row in brokers),
        "bytes": sum(row["bytes_ab"] + row["bytes_ba"] for row in links),
    }


def crashes(tables: Tables) -> int:
    """Starts of agents that had not been told to stop since they started last."""
    running: set[int] = set()
    found = 0
    for event in sorted(tables["events"], key=lambda event: event["window_start"]):
        if event["kind"] == "agent_started":
            found += event["broker"] in running
            running.add(event["broker"])
        elif event["kind"] == "agent_stopped":
            running.discard(event["broker"])
    return found


def traffic_figures(tables: Tables) -> Figures:
    """Who sends how much to whom: totals and the busiest filters."""
    filters: dict[str, Counter[str]] = defaultdict(Counter)
    for row in tables["traffic_matrix"]:
        filters[row["filter"]]["publications"] += row["publications"]
        filters[row["filter"]]["bytes"] += row["bytes"]
    busiest = sorted(filters, key=lambda name: (-filters[name]["publications"], name))
    return {
        "filters": len(filters),
        "publications": sum(row["publications"] for row in tables["traffic_matrix"]),
        "bytes": sum(row["bytes"] for row in tables["traffic_matrix"]),
        "busiest": [{"filter": name, **filters[name]} for name in busiest[:WORST]],
    }


def quality_figures(tables: Tables) -> Figures:
    """How far to believe the rest: clocks, bad records, batches that never came."""
    verdicts = Counter(row["verdict"] for row in tables["clocks"])
    span = next(iter(tables["span"]), None)
    counts = sorted(tables["quarantine_counts"], key=lambda row: (-row["records"], row["reason"]))
    return {
        "clocks": dict(sorted(verdicts.items())),
        "quarantined": sum(row["records"] for row in counts),
        "quarantined_by_reason": {row["reason"]: row["records"] for row in counts},
        "dropped_batches": span["dropped_batches"] if span else 0,
        "duplicates_removed": span["duplicates_removed"] if span else 0,
        "tables_cut": sorted(tables.cut),
        "whole_since": {name: _iso(since) for name, since in sorted(tables.cut.items())},
    }


def _chosen(row: Row, *keys: str) -> Figures:
    return {key: row[key] for key in keys}


def _sorted(rows: Iterable[Row], key: str) -> list[Any]:
    return sorted(rows, key=lambda row: (row[key] is None, row[key]))


def _highest(rows: Sequence[Row], key: str, who: str) -> Figures | None:
    known = [row for row in rows if row[key] is not None]
    if not known:
        return None
    row = max(known, key=lambda row: (row[key], -row[who]))
    return {who: row[who], "value": row[key]}


SUMMARY_VERSION = 1
"""Grows when a key goes or changes its meaning; new keys may come without."""


def summarise(tables: Tables, title: str = "") -> dict[str, Any]:
    """Every figure, the findings in words, the verdict. Only JSON values.

    Without a title the report is named after its federation. The key ``span`` is None when there
    was no record at all.
    """
    span = next(iter(tables["span"]), None)
    summary: dict[str, Any] = {
        "version": SUMMARY_VERSION,
        "title": title or (f"Federation {span['federation']}" if span else "Report"),
        "span": _span(span) if span and span["records"] else None,
        "delay": delay_figures(tables),
        "overhead": overhead_figures(tables),
        "loss": loss_figures(tables),
        "convergence": convergence_figures(tables),
        "load": load_figures(tables),
        "traffic": traffic_figures(tables),
        "quality": quality_figures(tables),
    }
    found = findings(summary)
    word, sentence = verdict(found)
    if summary["span"] is None:
        word, sentence = "unknown", "There is nothing to report on: no record was read."
    summary["verdict"], summary["sentence"] = word, sentence
    summary["findings"] = [*map(asdict, found)]
    return summary


def _span(row: Row) -> dict[str, Any]:
    first, last = row["first"], row["last"]
    seconds = (last - first).total_seconds() if first and last else None
    return {**row, "first": _iso(first), "last": _iso(last), "seconds": seconds}


def _iso(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
