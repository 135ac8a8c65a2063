"""The figures in words: is the federation healthy, and what is worst.

Each rule looks at one thing, says one sentence, and says how bad it is: ``bad`` is a promise broken
or a part that is dead; ``look`` deserves a look; ``note`` is good to know.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from analytics.digest.units import count, duration, percent, ratio, some

Weight = Literal["bad", "look", "note"]

LOOP_LAG_LOOK_US = 250_000
"""An agent that turns to its sockets a quarter of a second late adds that to every delay."""
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


Figures = dict[str, Any]


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
        text = f"Only the first rows were read of: {', '.join(quality['tables_cut'])}."
        yield Finding("look", "quality", text)


_RULES: tuple[Callable[[Figures], Iterator[Finding]], ...] = (
    _dead, _loss, _strain, _settling, _overhead, _belief, _slowest,
)  # fmt: skip
