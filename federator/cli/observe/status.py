"""``federator status``: how the agent of this machine is doing."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from federator.cli.agent_pages import Names, agent_url, get, url_option
from federator.cli.observe.loads import bits, filters_shown, load_shown
from federator.cli.observe.status_page import Flows, StatusPage, status_page
from federator.cli.options import answer_option, columns, config_option, print_result
from federator.protocol.telemetry.agent_status import LinkStatus
from federator.runtime.doctor.strangers import Speakers

Status = Mapping[str, Any]
Section = Mapping[str, Any]
Blocks = Sequence[tuple[str, Callable[[Any, Status], Iterable[str]]]]

MESHES_SHOWN = 20
LOOPS_SHOWN = 3
LINKS_SHOWN = 8
REASONS_SHOWN = 5
"""Limits without --verbose: the status of a healthy federation fits into a usual terminal."""

RULE_KEYS = ("import", "export", "deny", "rename")
BOTH = "by both"
"""Which ends dial a link usually: other ways are shown, as loads are if a capacity is known."""
TRAFFIC = {
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
    status = get(where, "/status")
    if routes:
        entries = get(where, "/routes")
        print_result(entries, table(Names(status.get("names")).beside(entries)), as_json=as_json)
        return 0
    print_result(status, as_text(status, verbose=verbose), as_json=as_json)
    return exit_code(status)


def exit_code(status: Status) -> int:
    """The exit code for scripts. An agent without a standing (a gateway) counts as fine."""
    if not status.get("ready"):
        return NOT_READY
    return 0 if status.get("standing", {}).get("well", True) else NOT_WELL


def as_text(status: Status, *, verbose: bool = False) -> list[str]:
    """The status for people: problems first, then links, then the rest in a few lines.

    ``verbose``: cores, meshes and counters in full.
    """
    page = status_page(status)
    names, broker = Names(page.names), page.broker
    status = names.beside(status)
    connected = "connected" if broker.connected else "NOT CONNECTED"
    return [
        *_headline(page, names),
        f"{broker.url}  {connected}  {broker.version or ''}".rstrip(),
        *_blocks(_PROBLEMS, status),
        *(_links_in_full(status) if verbose else _links(page.links, names)),
        *_blocks(_FEATURES, status),
        *_leaves(status.get("leaves", []), status.get("hub") or {}, verbose=verbose),
        *_blocks((("datagrams", _over_datagrams), ("direct", _straight)), status),
        *_blocks((("loops", _loops),), status),
        *(_in_full(status, page.flows, names) if verbose else _in_short(status)),
    ]


def _blocks(blocks: Blocks, status: Status) -> Iterator[str]:
    """The lines of each block that has its section in ``status``; the others print nothing."""
    for section, lines_of in blocks:
        if status.get(section):
            yield from lines_of(status[section], status)


def _data(status: Status) -> Section:
    """The counters of publications."""
    data: Section = status.get("counters", {}).get("data", {})
    return data


def _headline(page: StatusPage, names: Names) -> Iterator[str]:
    """The agent's identity and standing, and each problem in a line of its own."""
    standing, reasons = page.standing, page.standing.reasons
    if not page.ready:
        state, reasons = f"NOT READY: {page.ready_reason}", ()
    elif standing.word is None:
        state = "ready"
    else:
        state = f"ready, {standing.word if standing.well else standing.word.upper()}"
    yield f"broker {names.shown(page.id)} of federation {page.federation}: {state}"
    yield from _first("  ", reasons)


def _first(prefix: str, texts: Sequence[object]) -> Iterator[str]:
    """The first of ``texts``, a line each, and how many more there are."""
    yield from (f"{prefix}{shown(text)}" for text in texts[:REASONS_SHOWN])
    if (more := len(texts) - REASONS_SHOWN) > 0:
        yield f"  and {more} more: federator status --json"


def _configuration(read: Section, _: Status) -> Iterator[str]:
    """Errors in the file that was read last, and its keys that wait for a restart."""
    if read.get("refused"):
        yield f"configuration refused: {shown(read['refused'])}"
    yield from _first("waits for a restart: ", read.get("restart_wanted", []))


def _move(move: Section, _: Status) -> Iterator[str]:
    """While the role of a broker changes: its former role, and the progress."""
    mend = ": remove former" if move["phase"] == "ended" else ""
    yield f"was a {move['from']} of federation {move['federation']}: {move['phase']}{mend}"


def _hubs(hubs: Section, _: Status) -> Iterator[str]:
    """For a leaf with two hubs: which one serves it."""
    serves = hubs["served_by"]
    serving = "by no hub yet" if serves is None else f"by hub {serves}"
    yield f"served {serving}; in reserve: {', '.join(map(str, hubs['in_reserve']))}"


def _hubs_known(hubs: Sequence[Section], _: Status) -> Iterator[str]:
    """For a leaf that chooses: its configured hubs, as last measured."""
    yield from ("", "hubs to choose from:", *table(hubs))


def _leaves(leaves: Sequence[Section], hub: Section, *, verbose: bool) -> Iterator[str]:
    """The leaves of a hub, those that are not up first; a few unless ``verbose``."""
    if not leaves:
        return
    ordered = sorted(leaves, key=lambda leaf: bool(leaf.get("up")))
    yield from ("", f"leaves: {sum(bool(leaf.get('up')) for leaf in leaves)} of {len(leaves)} up")
    for side, name in SIDES.items():
        if side in hub:  # the share of bytes that had no subscriber on the other side
            size, vain = hub[side]["bytes"], hub[side]["bytes_in_vain"]
            yield f"  {name}: {size} bytes, {vain / size if size else 0.0:.1%} of them in vain"
    yield from table(ordered if verbose else ordered[:LINKS_SHOWN])


def _links_in_full(status: Status) -> Iterator[str]:
    apart = ("datagrams", "direct")
    links = status.get("links", [])
    rows = [{key: value for key, value in link.items() if key not in apart} for link in links]
    yield from ("", "links:", *table(rows))


def _links(links: Sequence[LinkStatus], names: Names) -> Iterator[str]:
    """The links, those that are not up first, then the fullest, and no more than a few."""
    if not links:
        yield from ("", "links: none")
        return
    rows = [
        {
            "neighbour": None if link.neighbour is None else names.shown(link.neighbour),
            "address": link.address,
            "state": link.state,
            "dialled": link.dialled,
            "cost": None if link.cost is None else int(link.cost),
            "rtt_ms": None if link.rtt_ms is None else int(link.rtt_ms),
            "load": load_shown(link),
        }
        for link in sorted(links, key=lambda link: (link.state == "up", -(link.load or 0)))
    ]
    usual = set[str]()
    if all(link.load is None for link in links):
        usual.add("load")
    if all(link.dialled in ("", BOTH) for link in links):
        usual.add("dialled")
    ups = sum(link.state == "up" for link in links)
    yield from ("", f"links: {ups} of {len(links)} up")
    first = rows[:LINKS_SHOWN]
    yield from table([{k: v for k, v in row.items() if k not in usual} for row in first])
    if (more := len(links) - LINKS_SHOWN) > 0:
        yield f"  and {more} more"


def _in_short(status: Status) -> Iterator[str]:
    """Discovery, meshes, rules and traffic, a line each."""
    data, meshes = _data(status), status.get("meshes", [])
    total = status.get("meshes_total", len(meshes))
    yield ""
    yield from _blocks((("discovery", _discovery),), status)
    yield f"meshes: {total}, of {len(status.get('cores', []))} cores"
    yield from _rules(status.get("rules", {}), always=False)
    yield from _edge(status)
    yield f"publications: {', '.join(f'{data.get(k, 0)} {what}' for k, what in TRAFFIC.items())}"
    yield "more: federator status --verbose"


def _discovery(found: Section, _: Status) -> Iterator[str]:
    """What discovery knows about our clients' subscriptions."""
    wanted = found.get("wanted", 0)
    filters = f"{wanted} filter{'' if wanted == 1 else 's'} wanted here"
    if found.get("trusted"):
        yield f"discovery: trusted, {filters}"
        return
    asks = "asks for everything" if found.get("widened") else "asks for what it knows"
    yield f"discovery: NOT TRUSTED, {asks}, {filters}"
    yield f"  {shown(found.get('reason'))}"


def _in_full(status: Status, flows: Flows, names: Names) -> Iterator[str]:
    """Cores, meshes, rules and every counter."""
    yield from ("", "cores:", *table(status.get("cores", [])))
    for title in ("meshes", "destinations"):
        routes = status.get(title, [])
        if routes or title == "meshes":
            total = status.get(f"{title}_total", len(routes))
            more = f", the first {MESHES_SHOWN}" if total > MESHES_SHOWN else ""
            yield from ("", f"{title}: {total}{more}", *table(routes[:MESHES_SHOWN]))
    yield from _flows(flows, names)
    yield from _blocks((("steering", _steering),), status)
    yield from _edge(status)
    yield from ("", *_rules(status.get("rules", {}), always=True))
    for title in ("discovery", "counters"):
        pairs = [(k, shown(v)) for k, v in _flat(status.get(title, {})) if v]
        yield from ("", f"{title}:", *(columns(pairs, indent=2) if pairs else ["  nothing yet"]))


def _steering(steering: Section, _: Status) -> Iterator[str]:
    """The steerer of this broker, if any."""
    if steering.get("steerer") is not None:
        trees, torn = steering.get("trees"), steering.get("torn")
        yield ""
        yield f"steered by {shown(steering['steerer'])}: {trees} trees, {torn} branches torn"


def _edge(status: Status) -> Iterator[str]:
    """What this broker keeps or collects by a steerer's plan, and problems with that."""
    edge, kept = status.get("steering") or {}, _data(status).get("kept", 0)
    if edge.get("keeps") or kept:
        policy = f"by policy {shown(edge['keeps'])}" if edge.get("keeps") else "nothing now"
        yield f"kept at the edge: {kept} publications, {policy}"
    if edge.get("collects"):
        yield f"collects: {shown(edge['collects'])}, but what is kept at edges"
    if edge.get("why_not"):
        yield f"a steerer may not place topics here: {shown(edge['why_not'])}"


def _flows(flows: Flows, names: Names) -> Iterator[str]:
    """The heaviest flows of our clients, where there are any."""
    rows = [
        {
            "filters": filters_shown(flow),
            "to": [names.shown(id) for id in flow.destinations],
            "rate": bits(flow.rate),
            "error": bits(flow.error),
            "publications": flow.publications,
            "by a tree": flow.planned,
        }
        for flow in flows.heaviest[:MESHES_SHOWN]
    ]
    if rows:
        head = f"flows: {len(flows.heaviest)}, others together {bits(flows.rest)}"
        yield from ("", head, *table(rows))


def _rules(rules: Section, *, always: bool) -> Iterator[str]:
    """The rules at the edge, a line; where there are none, if ``always``."""
    parts = [f"{key} {shown(rules[key])}" for key in RULE_KEYS if rules.get(key)]
    kept, held = rules.get("keep_total", 0), rules.get("not_imported", 0)
    everything = all(rules.get(key, ["#"]) == ["#"] for key in ("import", "export"))
    if always or not everything or rules.get("deny") or rules.get("rename") or kept or held:
        yield f"rules: {', '.join(parts)}; {kept} kept here, {held} not imported"


def _reports(status: Status, transport: str) -> Iterator[tuple[object, Section]]:
    """Each neighbour that is reached by ``transport``, past its broker, and how."""
    for link in status.get("links", []):
        if link.get(transport) is not None:
            yield link["neighbour"], link[transport]


def _over_datagrams(_: Section, status: Status) -> Iterator[str]:
    rows = [
        {
            "neighbour": neighbour,
            "used": report["used"],
            "rtt_ms": report["rtt_ms"] and round(report["rtt_ms"], 1),
            "lost_out": f"{report['lost_ppm_out'] / 10_000:.2f} %",
            "lost_in": f"{report['lost_ppm_in'] / 10_000:.2f} %",
            "parts": report["out"]["parts"],
            "repairs": report["out"]["repairs"],
            "by_broker": report["out"]["given_back"],
            "rebuilt_in": report["in"]["rebuilt_parts"],
        }
        for neighbour, report in _reports(status, "datagrams")
    ]
    yield from ("", "links over datagrams:", *table(rows))


def _straight(_: Section, status: Status) -> Iterator[str]:
    rows = [
        {
            "neighbour": neighbour,
            "used": report["used"],
            "comes_to_us": report["comes_to_us"],
            "address": report["address"] or "-",
            "unconfirmed": report["unconfirmed"],
            "reason": "" if report["used"] else report["last_error"] or "it has not offered one",
        }
        for neighbour, report in _reports(status, "direct")
    ]
    yield from ("", "links straight to agents:", *table(rows))


def _security(security: Section, _: Status) -> Iterator[str]:
    """A line about authentication; in an open federation a warning about what it lacks."""
    match security.get("mode"):
        case None:
            return
        case "open":
            yield "security: OPEN: whoever may publish on the brokers is believed"
        case mode:
            day = datetime.fromtimestamp(security.get("expires_s", 0), UTC).date().isoformat()
            refused = security.get("refused", 0)
            more = f", {refused} refused: see trust.refused in the log" if refused else ""
            yield f"security: {mode}, certificate until {day}{more}"
            speakers = security.get("strangers_may_speak")
            if speakers not in (None, Speakers.NOBODY):
                yield f"  NO ACL: $fed/# may be written by {speakers}: see federator doctor --acl"


def _unknown(discovery: Section, status: Status) -> Iterator[str]:
    """While subscriptions are unknown: of which clients, the cost, and the remedy."""
    if not discovery.get("unknown"):
        return
    data = _data(status)
    asks = shown(discovery.get("asks_for")) if discovery.get("widened") else "nothing more"
    yield (
        f"  UNKNOWN: {discovery['unknown']} subscriptions, of clients connected before"
        f" {discovery['unheard_before']} ({discovery['unknown_clients']} are unknown)"
    )
    yield (
        f"  so it asks for {asks}: {data.get('in_doubt', 0)} publications in frames of"
        f" {data.get('in_doubt_bytes', 0)} bytes came for nobody known"
    )
    yield "  Reconnect those clients, or restart the broker: see troubleshooting.md, widened"


def _retained(retained: Section, _: Status) -> Iterator[str]:
    """A line when more topics are retained than there are places for."""
    if (full := retained.get("full")) is not None:
        yield (
            f"  RETAINED TABLE FULL: {full['topics']} of {retained['topics_max']} topics are of"
            f" broker {full['origin']}, many below {shown(full['below'])}: see events.md,"
            " retained.full"
        )


def _loops(loops: Section, _: Status) -> Iterator[str]:
    """Bridges beside the federation, if any were detected."""
    bridges, broken = loops.get("bridges", []), loops.get("broken", {})
    if bridges or broken:
        yield from ("", f"bridges beside us: {'; '.join(map(shown, bridges)) or 'none'}")
    if broken:
        examples = ", ".join(map(shown, list(broken)[:LOOPS_SHOWN]))
        total, dropped = loops.get("broken_total", 0), loops.get("dropped", 0)
        yield f"  LOOP BROKEN: {total} topics come back, such as {examples};"
        yield f"  {dropped} copies stopped. Remove the bridge, or see events.md, bridge.loop"


_PROBLEMS: Blocks = (
    ("security", _security),
    ("configuration", _configuration),
    ("discovery", _unknown),
    ("retained", _retained),
)
_FEATURES: Blocks = (("move", _move), ("hubs", _hubs), ("hubs_known", _hubs_known))
"""Sections of the status, and their lines before and behind the links."""


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
