"""``federator status``: how the agent of this machine is doing."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from federator.cli.agent_pages import Names, agent_url, get, url_option
from federator.cli.observe.loads import bits, filters_shown, load_of, load_shown
from federator.cli.options import answer_option, columns, config_option
from federator.runtime.doctor.strangers import Speakers

MESHES_SHOWN = 20
LOOPS_SHOWN = 3
LINKS_SHOWN = 8
REASONS_SHOWN = 5
"""Limits without --verbose: the status of a healthy federation fits into a usual terminal."""

RULES_TOLD = ("import", "export", "deny", "rename")
LINK_COLUMNS = ("neighbour", "address", "state", "dialled", "cost", "rtt_ms", "load")
""""load" is shown only if the capacity of some link is known, "dialled" only if one end does not
dial.
"""
BOTH = "by both"
TRAFFIC_TOLD = {
    "publications_in": "of our clients",
    "publications_out": "sent on",
    "delivered_publications": "delivered here",
}

SIDES = {"mesh": "brought by the mesh", "leaves": "brought by leaves"}
"""Of a hub."""

NOT_READY, NOT_WELL = 1, 2
"""Exit codes."""


@click.command(name="status")
@config_option
@url_option
@answer_option
@click.option(
    "--routes", is_flag=True, help="The routing table instead: path, weight and backup per filter."
)
@click.option("--verbose", is_flag=True, help="All links, cores and meshes, and every counter.")
def command(
    config: Path | None, url: str | None, as_json: bool, routes: bool, verbose: bool
) -> int:
    """Show how the agent of this machine is doing.

    Exits 0 when it is ready and stands well in the federation (joined, or alone as it is meant to
    be), 2 when it is ready and a neighbour is missing or refuses, 1 when it runs but is not ready,
    69 when it does not answer.
    """
    where = agent_url(config, url)
    if routes:
        entries = get(where, "/routes")
        if not as_json:
            entries = Names(get(where, "/status").get("names")).beside(entries)
        click.echo(json.dumps(entries, indent=2) if as_json else "\n".join(table(entries)))
        return 0
    status = get(where, "/status")
    lines = as_text(status, verbose=verbose)
    click.echo(json.dumps(status, indent=2) if as_json else "\n".join(lines))
    return exit_code(status)


def exit_code(status: Mapping[str, Any]) -> int:
    """The exit code for scripts. An agent without a standing (a gateway) counts as fine."""
    if not status.get("ready"):
        return NOT_READY
    return 0 if status.get("standing", {}).get("well", True) else NOT_WELL


def as_text(status: Mapping[str, Any], *, verbose: bool = False) -> list[str]:
    """The status for people: problems first, then links, then the rest in a few lines.

    ``verbose``: cores, meshes and counters in full.
    """
    names = Names(status.get("names"))
    status = names.beside(status)
    broker = status.get("broker", {})
    connected = "connected" if broker.get("connected") else "NOT CONNECTED"
    lines = [
        *_headline(status, names),
        f"{broker.get('url', '')}  {connected}  {broker.get('version') or ''}".rstrip(),
        *_security(status.get("security", {})),
        *_configuration(status.get("configuration", {})),
        *_unknown(status.get("discovery", {}), status.get("counters", {}).get("data", {})),
        *_retained(status.get("retained") or {}),
        *_links(status.get("links", []), verbose=verbose),
        *_move(status.get("move") or {}),
        *_hubs(status.get("hubs") or {}),
        *_hubs_known(status.get("hubs_known", [])),
        *_leaves(status.get("leaves", []), status.get("hub") or {}, verbose=verbose),
    ]
    links = status.get("links", [])
    datagrams = [_datagrams(link["neighbour"], link.get("datagrams")) for link in links]
    if status.get("datagrams"):
        lines += ["", "links over datagrams:", *table([row for row in datagrams if row])]
    direct = [_direct(link["neighbour"], link.get("direct")) for link in links]
    if status.get("direct"):
        lines += ["", "links straight to agents:", *table([row for row in direct if row])]
    lines += _loops(status.get("loops", {}))
    return lines + (_in_full(status) if verbose else _in_short(status))


def _headline(status: Mapping[str, Any], names: Names) -> list[str]:
    """The agent's identity and standing, and each problem in a line of its own."""
    standing = status.get("standing", {})
    standing_word, reasons = standing.get("word"), standing.get("reasons", [])
    if not status.get("ready"):
        state, reasons = f"NOT READY: {status.get('ready_reason', '')}", ()
    else:
        state = "ready" if standing_word is None else f"ready, {standing_word}"
        state = (
            state
            if standing.get("well", True)
            else state.replace(standing_word, standing_word.upper())
        )
    broker = names.shown(status.get("id"))
    lines = [f"broker {broker} of federation {status.get('federation')}: {state}"]
    lines += [f"  {shown(reason)}" for reason in reasons[:REASONS_SHOWN]]
    more = len(reasons) - REASONS_SHOWN
    return [*lines, f"  and {more} more: federator status --json"] if more > 0 else lines


def _configuration(read: Mapping[str, Any]) -> list[str]:
    """Errors in the file that was read last, and its keys that wait for a restart."""
    lines = [f"configuration refused: {shown(read['refused'])}"] if read.get("refused") else []
    waiting = read.get("restart_wanted", [])
    listed = waiting[:REASONS_SHOWN]
    lines += [f"waits for a restart: {shown(key)}" for key in listed]
    more = len(waiting) - len(listed)
    return [*lines, f"  and {more} more: federator status --json"] if more > 0 else lines


def _move(move: Mapping[str, Any]) -> list[str]:
    """While the role of a broker changes: its former role, and the progress."""
    if not move:
        return []
    mend = ": remove former" if move["phase"] == "ended" else ""
    return [f"was a {move['from']} of federation {move['federation']}: {move['phase']}{mend}"]


def _hubs(hubs: Mapping[str, Any]) -> list[str]:
    """For a leaf with two hubs: which one serves it."""
    if not hubs:
        return []
    serves = hubs["served_by"]
    serving = "by no hub yet" if serves is None else f"by hub {serves}"
    return [f"served {serving}; in reserve: {', '.join(map(str, hubs['in_reserve']))}"]


def _hubs_known(hubs: Sequence[Mapping[str, Any]]) -> list[str]:
    """For a leaf that chooses: its configured hubs, as last measured."""
    return ["", "hubs to choose from:", *table([dict(hub) for hub in hubs])] if hubs else []


def _leaves(
    leaves: Sequence[Mapping[str, Any]], hub: Mapping[str, Any], *, verbose: bool
) -> list[str]:
    """The leaves of a hub, those that are not up first; a few unless ``verbose``."""
    if not leaves:
        return []
    ordered = sorted(leaves, key=lambda leaf: bool(leaf.get("up")))
    up = sum(bool(leaf.get("up")) for leaf in leaves)
    listed = ordered if verbose else ordered[:LINKS_SHOWN]
    return [
        "",
        f"leaves: {up} of {len(leaves)} up",
        *(f"  {_in_vain(name, hub[side])}" for side, name in SIDES.items() if side in hub),
        *table([dict(leaf) for leaf in listed]),
    ]


def _in_vain(side: str, brought: Mapping[str, int]) -> str:
    """The share of bytes on one side of a hub that had no subscriber there."""
    size, vain = brought["bytes"], brought["bytes_in_vain"]
    return f"{side}: {size} bytes, {vain / size if size else 0.0:.1%} of them in vain"


def _links(links: Sequence[Mapping[str, Any]], *, verbose: bool) -> list[str]:
    """The links, those that are not up first, then the fullest; a few unless ``verbose``."""
    if verbose:
        apart = ("datagrams", "direct")
        rows = [{k: v for k, v in link.items() if k not in apart} for link in links]
        return ["", "links:", *table(rows)]
    if not links:
        return ["", "links: none"]
    ordered = sorted(links, key=lambda link: (link.get("state") == "up", -(load_of(link) or 0)))
    shown_first = [{**link, "load": load_shown(link)} for link in ordered[:LINKS_SHOWN]]
    usual = set[str]()
    if all(load_of(link) is None for link in links):
        usual.add("load")
    if all(link.get("dialled", BOTH) == BOTH for link in links):
        usual.add("dialled")
    shown_keys = [key for key in LINK_COLUMNS if key not in usual]
    rows = [{key: link.get(key) for key in shown_keys} for link in shown_first]
    ups = sum(link.get("state") == "up" for link in links)
    lines = ["", f"links: {ups} of {len(links)} up", *table(rows)]
    more = len(links) - LINKS_SHOWN
    return [*lines, f"  and {more} more"] if more > 0 else lines


def _in_short(status: Mapping[str, Any]) -> list[str]:
    """Discovery, meshes, rules and traffic, a line each."""
    data = status.get("counters", {}).get("data", {})
    meshes, cores = status.get("meshes", []), status.get("cores", [])
    total = status.get("meshes_total", len(meshes))
    traffic = {name: data.get(name, 0) for name in TRAFFIC_TOLD}
    return [
        "",
        *_discovery(status.get("discovery", {})),
        f"meshes: {total}, of {len(cores)} cores",
        *_rules(status.get("rules", {}), always=False),
        *_edge(status.get("steering") or {}, data),
        f"publications: {', '.join(f'{n} {TRAFFIC_TOLD[k]}' for k, n in traffic.items())}",
        "more: federator status --verbose",
    ]


def _discovery(found: Mapping[str, Any]) -> list[str]:
    """What discovery knows about our clients' subscriptions."""
    if not found:
        return []
    wanted = found.get("wanted", 0)
    filters = f"{wanted} filter{'' if wanted == 1 else 's'} wanted here"
    if found.get("trusted"):
        return [f"discovery: trusted, {filters}"]
    asks = "asks for everything" if found.get("widened") else "asks for what it knows"
    return [f"discovery: NOT TRUSTED, {asks}, {filters}", f"  {shown(found.get('reason'))}"]


def _in_full(status: Mapping[str, Any]) -> list[str]:
    """Cores, meshes, rules and every counter."""
    lines = ["", "cores:", *table(status.get("cores", []))]
    for title in ("meshes", "destinations"):
        routes = status.get(title, [])
        if routes or title == "meshes":
            total = status.get(f"{title}_total", len(routes))
            more = f", the first {MESHES_SHOWN}" if total > MESHES_SHOWN else ""
            lines += ["", f"{title}: {total}{more}", *table(routes[:MESHES_SHOWN])]
    lines += _flows(status.get("flows") or {})
    lines += _steering(status.get("steering") or {})
    lines += _edge(status.get("steering") or {}, status.get("counters", {}).get("data", {}))
    lines += ["", *_rules(status.get("rules", {}), always=True)]
    for title in ("discovery", "counters"):
        pairs = [(k, shown(v)) for k, v in _flat(status.get(title, {})) if v]
        lines += ["", f"{title}:", *(columns(pairs, indent=2) if pairs else ["  nothing yet"])]
    return lines


def _steering(steering: Mapping[str, Any]) -> list[str]:
    """The steerer of this broker, if any."""
    if steering.get("steerer") is None:
        return []
    trees, torn = steering.get("trees"), steering.get("torn")
    return ["", f"steered by {shown(steering['steerer'])}: {trees} trees, {torn} branches torn"]


def _edge(edge: Mapping[str, Any], data: Mapping[str, Any]) -> list[str]:
    """What this broker keeps or collects by a steerer's plan, and problems with that."""
    lines = []
    if edge.get("keeps") or data.get("kept"):
        policy = f"by policy {shown(edge['keeps'])}" if edge.get("keeps") else "nothing now"
        lines.append(f"kept at the edge: {data.get('kept', 0)} publications, {policy}")
    if edge.get("collects"):
        lines.append(f"collects: {shown(edge['collects'])}, but what is kept at edges")
    if edge.get("why_not"):
        lines.append(f"a steerer may not place topics here: {shown(edge['why_not'])}")
    return lines


def _flows(page: Mapping[str, Any]) -> list[str]:
    """The heaviest flows of our clients, where there are any."""
    flows = page.get("heaviest", [])
    rows = [
        {
            "filters": filters_shown(flow),
            "to": flow.get("destinations"),
            "rate": bits(flow.get("rate", 0)),
            "error": bits(flow.get("error", 0)),
            "publications": flow.get("publications"),
            "by a tree": flow.get("planned"),
        }
        for flow in flows[:MESHES_SHOWN]
    ]
    head = f"flows: {len(flows)}, others together {bits(page.get('rest', 0))}"
    return ["", head, *table(rows)] if rows else []


def _rules(rules: Mapping[str, Any], *, always: bool) -> list[str]:
    """The rules at the edge, a line; where there are none, if ``always``."""
    parts = [f"{key} {shown(rules[key])}" for key in RULES_TOLD if rules.get(key)]
    kept, held = rules.get("keep_total", 0), rules.get("not_imported", 0)
    usual = not (rules.get("deny") or rules.get("rename") or kept or held)
    if usual and not always and all(rules.get(k, ["#"]) == ["#"] for k in ("import", "export")):
        return []
    return [f"rules: {', '.join(parts)}; {kept} kept here, {held} not imported"]


def _datagrams(neighbour: object, report: Mapping[str, Any] | None) -> dict[str, object]:
    """One row; empty when there is no such link."""
    if report is None:
        return {}
    out, came = report["out"], report["in"]
    return {
        "neighbour": neighbour,
        "used": report["used"],
        "rtt_ms": report["rtt_ms"] and round(report["rtt_ms"], 1),
        "lost_out": f"{report['lost_ppm_out'] / 10_000:.2f} %",
        "lost_in": f"{report['lost_ppm_in'] / 10_000:.2f} %",
        "parts": out["parts"],
        "repairs": out["repairs"],
        "by_broker": out["given_back"],
        "rebuilt_in": came["rebuilt_parts"],
    }


def _direct(neighbour: object, report: Mapping[str, Any] | None) -> dict[str, object]:
    """One row; empty when there is no such link."""
    if report is None:
        return {}
    return {
        "neighbour": neighbour,
        "used": report["used"],
        "comes_to_us": report["comes_to_us"],
        "address": report["address"] or "-",
        "unconfirmed": report["unconfirmed"],
        "reason": "" if report["used"] else report["last_error"] or "it has not offered one",
    }


def _security(security: Mapping[str, Any]) -> list[str]:
    """A line about authentication; in an open federation a warning about what it lacks."""
    match security.get("mode"):
        case None:
            return []
        case "open":
            return ["security: OPEN: whoever may publish on the brokers is believed"]
        case mode:
            day = datetime.fromtimestamp(security.get("expires_s", 0), UTC).date().isoformat()
            refused = security.get("refused", 0)
            more = f", {refused} refused: see trust.refused in the log" if refused else ""
            line = f"security: {mode}, certificate until {day}{more}"
            who = security.get("strangers_may_speak")
            if who in (None, Speakers.NOBODY):
                return [line]
            return [line, f"  NO ACL: $fed/# may be written by {who}: see federator doctor --acl"]


def _unknown(discovery: Mapping[str, Any], data: Mapping[str, Any]) -> list[str]:
    """While subscriptions are unknown: of which clients, the cost, and the remedy."""
    if not discovery.get("unknown"):
        return []
    asks = shown(discovery.get("asks_for")) if discovery.get("widened") else "nothing more"
    return [
        f"  UNKNOWN: {discovery['unknown']} subscriptions, of clients connected before"
        f" {discovery['unheard_before']} ({discovery['unknown_clients']} are unknown)",
        f"  so it asks for {asks}: {data.get('in_doubt', 0)} publications in frames of"
        f" {data.get('in_doubt_bytes', 0)} bytes came for nobody known",
        "  Reconnect those clients, or restart the broker: see troubleshooting.md, widened",
    ]


def _retained(retained: Mapping[str, Any]) -> list[str]:
    """A line when more topics are retained than there are places for."""
    full = retained.get("full")
    if full is None:
        return []
    return [
        f"  RETAINED TABLE FULL: {full['topics']} of {retained['topics_max']} topics are of broker"
        f" {full['origin']}, many below {shown(full['below'])}: see events.md, retained.full"
    ]


def _loops(loops: Mapping[str, Any]) -> list[str]:
    """Bridges beside the federation, if any were detected."""
    bridges, broken = loops.get("bridges", []), loops.get("broken", {})
    if not bridges and not broken:
        return []
    lines = ["", f"bridges beside us: {'; '.join(map(shown, bridges)) or 'none'}"]
    if broken:
        total, dropped = loops.get("broken_total", 0), loops.get("dropped", 0)
        examples = ", ".join(map(shown, list(broken)[:LOOPS_SHOWN]))
        lines.append(f"  LOOP BROKEN: {total} topics come back, such as {examples};")
        mend = "Remove the bridge, or see events.md, bridge.loop"
        lines.append(f"  {dropped} copies stopped. {mend}")
    return lines


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """``{"a": {"b": 1}}`` as ``a.b`` and 1."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def table(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Entries with the same keys as aligned rows under a head."""
    if not entries:
        return ["  none"]
    keys = list(dict.fromkeys(key for entry in entries for key in entry))
    rows = [[shown(entry.get(key)) for key in keys] for entry in entries]
    return columns([keys, *rows], indent=2)


def shown(value: object) -> str:
    """A JSON value in a cell."""
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.1f}"
        case list() | tuple():
            return " ".join(shown(item) for item in value) or "-"
        case dict():
            return " ".join(f"{k}={shown(v)}" for k, v in value.items()) or "-"
        case _:
            text = str(value)
            return text if text.isprintable() else repr(text)
