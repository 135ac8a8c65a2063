"""``federator top``: agents at work, live.

Problems are red, loads have bars, the rest is plain. The same snapshots give the same picture. Rows
that do not fit are counted below the table.
"""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from federator.cli.agent_pages import Names, agent_url, agents_of_grid, get
from federator.cli.observe.loads import bits, filters_shown, load_of, load_shown
from federator.cli.observe.top_samples import Snapshot, Watched
from federator.cli.options import PLACE, config_option
from federator.errors import LinkError

AT_ONCE_MAX: Final = 16
CURVE: Final = " ▁▂▃▄▅▆▇█"
BAR_CELLS: Final = 8
FIXED_LINES: Final = 12
"""Of a picture without rows: head, curves, tables' heads, lines between them, what is cut."""
ROWS_MIN: Final = 3
FULL, HALF = 0.9, 0.5
"""Of a queue: red from here, yellow from there."""

WIDE: Final = 130
BROKER_COLUMNS: Final = (
    *("broker", "state", "clients", "filters", "published/s", "delivered/s", "relayed/s", "lost/s"),
    *("half within", "99%", "queued", "missing", "custody", "cpu", "memory"),
)
ONLY_WIDE: Final = ("filters", "relayed/s", "missing", "custody", "memory")
"""Columns that are left out of terminals that are not ``WIDE``."""

LINK_COLUMNS: Final[tuple[tuple[str, str], ...]] = (
    *(("link", "<"), ("state", "<"), ("round trip", ">"), ("cost", ">"), ("out/s", ">")),
    *(("load", "<"), ("queued", ">"), ("", "<"), ("refused/s", ">"), ("", "<")),
)
LOAD_AT: Final = 5
"""Of ``LINK_COLUMNS`` the one that is left out where no capacity is known."""

FLOW_COLUMNS: Final = (
    *(("flow", "<"), ("from", "<"), ("to", "<"), ("rate", ">"), ("error", ">")),
    ("publications/s", ">"),
)
MESH_COLUMNS: Final = (("mesh of", "<"), ("core", ">"), ("clients at", "<"), ("carried by", "<"))

LOST: Final = ("counters.data.dropped", "counters.data.no_route", "custody.gone")


@click.command(name="top")
@config_option
@click.option(
    "--url", "urls", multiple=True, help="An agent's HTTP listener; several times for several."
)
@click.option(
    "--state",
    type=PLACE,
    help="State file of `federator-lab grid --stay`: watch every agent in it.",
)
@click.option("--every", type=click.FloatRange(0.2, 3_600), default=1.0, help="Seconds. [1]")
@click.option(
    "--once", is_flag=True, help="One picture, after two snapshots; so without a terminal."
)
def command(
    config: Path | None, urls: tuple[str, ...], state: Path | None, every: float, once: bool
) -> int:
    """Show agents at work, live: rates, delays, links, queues, meshes.

    One agent, that of this machine, or several that can be asked from here. Ctrl-C ends it.
    Exits 69 when, with --once, none answers.
    """
    where = list(urls) or (
        agents_of_grid(state) if state is not None else [agent_url(config, None)]
    )
    watched = [Watched(url.rstrip("/")) for url in where]
    console = Console()
    with ThreadPoolExecutor(min(AT_ONCE_MAX, len(watched))) as askers:
        refresh(watched, askers)
        if once or not sys.stdout.isatty():
            time.sleep(every)
            refresh(watched, askers)
            console.print(_picture(watched, console, height=10_000))
            if all(agent.now is None for agent in watched):
                raise LinkError(watched[0].trouble)
            return 0
        try:
            with Live(console=console, screen=True, auto_refresh=False) as live:
                while True:
                    live.update(_picture(watched, console, height=console.height), refresh=True)
                    time.sleep(every)
                    refresh(watched, askers)
        except KeyboardInterrupt:
            return 0


def refresh(watched: list[Watched], askers: ThreadPoolExecutor) -> None:
    """Ask all agents at once."""
    for agent, found in zip(
        watched, askers.map(_query, [agent.url for agent in watched]), strict=True
    ):
        if isinstance(found, Snapshot):
            agent.take(found)
        else:
            agent.miss(found)


def _query(url: str) -> Snapshot | str:
    try:
        return Snapshot(time.monotonic(), get(url, "/status"))
    except LinkError as error:
        return str(error)


def _picture(watched: list[Watched], console: Console, *, height: int) -> Group:
    now = datetime.now(UTC).astimezone()
    return picture(watched, now, height=height, width=console.width)


def picture(watched: Sequence[Watched], at: datetime, *, height: int, width: int) -> Group:
    """The whole picture, in at most about ``height`` lines."""
    agents = sorted(watched, key=lambda agent: (not agent.name.isdigit(), agent.name.rjust(12)))
    room = max(2 * ROWS_MIN, height - FIXED_LINES - len(agents))
    links, heads = _links(agents), LINK_COLUMNS
    if not any(row[LOAD_AT] for row in links):
        links = [row[:LOAD_AT] + row[LOAD_AT + 1 :] for row in links]
        heads = heads[:LOAD_AT] + heads[LOAD_AT + 1 :]
    flows = _flows(agents)
    flows_shown = min(len(flows), max(ROWS_MIN, room // 4))
    room -= flows_shown + 2 if flows else 0
    meshes = _meshes(agents)
    links_shown = min(len(links), max(ROWS_MIN, room - min(len(meshes), room // 2)))
    meshes_shown = min(len(meshes), max(ROWS_MIN, room - links_shown))
    return Group(
        _head(agents, at),
        *_curves(agents, width),
        *_troubles(agents),
        "",
        _brokers_table(agents, wide=width >= WIDE),
        "",
        _cut(_table(*heads), links, links_shown),
        *([] if not flows else ("", _cut(_table(*FLOW_COLUMNS), flows, flows_shown))),
        "",
        _cut(_table(*MESH_COLUMNS), meshes, meshes_shown),
    )


def _head(agents: Sequence[Watched], at: datetime) -> Text:
    ready = sum(bool(agent.status.get("ready")) for agent in agents)
    federations = {str(agent.status.get("federation")) for agent in agents if agent.status}
    text = Text.assemble(
        ("federator", "bold"),
        f"  federation {' '.join(sorted(federations)) or '?'}  ",
        (f"{ready} of {len(agents)} ready", "green" if ready == len(agents) else "bold red"),
    )
    controllers = {agent.value("failover.controller") for agent in agents} - {None}
    if controllers:
        names = _names(agents)
        ids = sorted(c for c in controllers if c is not None)
        named = " and ".join(names.shown(f"{c:.0f}") for c in ids)
        text.append(f"  controller {named}", "" if len(controllers) == 1 else "yellow")
    text.append(f"  {at:%H:%M:%S}", "dim")
    return text


def _names(agents: Sequence[Watched]) -> Names:
    """The names of brokers from all agents together."""
    return Names({id: name for agent in agents for id, name in agent.names.items()})


def _troubles(agents: Sequence[Watched]) -> Iterable[Text]:
    names = _names(agents)
    for agent in agents:
        if agent.now is None:
            yield Text(agent.trouble, "red", no_wrap=True)
        elif not agent.status.get("ready"):
            why = agent.status.get("ready_reason", "")
            yield Text(f"broker {names.shown(agent.name)}: {why}", "red", no_wrap=True)
        elif reasons := agent.status.get("standing", {}).get("reasons"):
            yield Text(
                f"broker {names.shown(agent.name)}: {'; '.join(reasons)}", "yellow", no_wrap=True
            )


def _curves(agents: Sequence[Watched], width: int) -> Iterable[Text]:
    room = max(10, min(60, width - 40))
    for title, histories in (
        ("published", [agent.published for agent in agents]),
        ("delivered", [agent.delivered for agent in agents]),
    ):
        points = [
            sum(h[-ago] for h in histories if len(h) >= ago)
            for ago in range(min(room, max(map(len, histories), default=0)), 0, -1)
        ]
        now = amount(points[-1]) if points else "-"
        text = Text(f"{title:<10}{now:>8}/s  ")
        text.append(curve(points), "cyan")
        text.append(f"  at most {amount(max(points))}" if points else "", "dim")
        yield text


def curve(points: Sequence[float]) -> str:
    """A line of blocks, the greatest of ``points`` filling one."""
    top = max(points, default=0.0)
    if not top:
        return "▁" * len(points)
    return "".join(CURVE[round(point / top * (len(CURVE) - 1))] for point in points)


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold cyan")
    for name, side in columns:
        table.add_column(name, justify="right" if side == ">" else "left", no_wrap=True)
    return table


def _brokers_table(agents: Sequence[Watched], *, wide: bool) -> Table:
    heads = [head for head in BROKER_COLUMNS if wide or head not in ONLY_WIDE]
    table = _table(*((head, "<" if head in ("broker", "state") else ">") for head in heads))
    names = _names(agents)
    for agent in agents:
        label = Text(names.shown(agent.name))
        if agent.now is None:
            table.add_row(label, Text("no answer", "bold red"))
            continue
        cells = {"broker": label, **_broker(agent, agent.status)}
        table.add_row(*(cells[head] for head in heads))
    return table


def _broker(agent: Watched, status: Mapping[str, Any]) -> Mapping[str, RenderableType]:
    lost = agent.rate(*LOST)
    gaps = agent.value("custody.gaps")
    cpu = agent.rate("process.cpu_s")
    return {
        "state": _state(status),
        "clients": amount(agent.value("failover.clients")),
        "filters": amount(agent.value("routing.filters")),
        "published/s": amount(agent.rate("counters.data.publications_in")),
        "delivered/s": amount(agent.rate("counters.data.delivered_publications")),
        "relayed/s": amount(agent.rate("counters.data.relayed")),
        "lost/s": Text(amount(lost), "bold red" if lost else ""),
        "half within": seconds(agent.delay_s(0.5)),
        "99%": seconds(agent.delay_s(0.99)),
        "queued": size(agent.value("connections.send_queue_bytes")),
        "missing": Text(amount(gaps), "yellow" if gaps else ""),
        "custody": size(agent.value("custody.log_bytes")),
        "cpu": "-" if cpu is None else f"{100 * cpu:.0f}%",
        "memory": size(agent.value("process.rss_bytes")),
    }


def _state(status: Mapping[str, Any]) -> Text:
    if not status.get("ready"):
        return Text("not ready", "bold red")
    standing = status.get("standing", {})
    if not standing.get("well", True):
        word = standing["word"]
        return Text(word, "bold red" if word == "degraded" else "yellow")
    if status.get("discovery", {}).get("widened"):
        return Text("asks for all", "yellow")
    return Text("ready", "green")


Row = tuple[RenderableType, ...]


def _links(agents: Sequence[Watched]) -> list[Row]:
    """Links that are down first, then the fullest, then by what goes over them."""
    rows: list[tuple[tuple[bool, float, float], Row]] = []
    names = _names(agents)
    for agent in agents:
        for link in agent.status.get("links", ()):
            id_ = str(link.get("neighbour") if link.get("neighbour") is not None else "?")
            up = link.get("state") == "up"
            queued = agent.value(f"traffic.{id_}.queue_bytes")
            limit = agent.value("connections.send_queue_limit")
            bytes_out = agent.rate(f"traffic.{id_}.bytes_out")
            refused = agent.rate(f"traffic.{id_}.drops")
            round_trip_ms = link.get("rtt_ms")
            row: Row = (
                Text(f"{names.shown(agent.name)} → {names.shown(id_)}"),
                Text("up", "green") if up else Text(str(link.get("state")), "bold red"),
                "-" if round_trip_ms is None or not up else f"{round_trip_ms} ms",
                amount(link.get("cost")),
                size(bytes_out),
                _load(link),
                size(queued),
                bar((queued or 0.0) / limit) if limit else "",
                Text(amount(refused), "bold red" if refused else ""),
                "" if up else Text(str(link.get("reason", ""))[:48], "dim"),
            )
            rows.append(((up, -(load_of(link) or 0.0), -(bytes_out or 0.0)), row))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def _load(link: Mapping[str, Any]) -> Text:
    """How full a link is; nothing where its capacity is not known."""
    load = load_of(link)
    if load is None:
        return Text()
    colour = "bold red" if load >= FULL else "yellow" if load >= HALF else "green"
    return Text(load_shown(link) or "", colour)


def _flows(agents: Sequence[Watched]) -> list[Row]:
    """The heaviest flows of all agents, heaviest first."""
    names = _names(agents)
    flows = [
        (flow, agent.name)
        for agent in agents
        for flow in (agent.status.get("flows") or {}).get("heaviest", ())
    ]
    flows.sort(key=lambda pair: -pair[0].get("rate", 0))
    return [
        (
            Text(filters_shown(flow)),
            Text(names.shown(name)),
            Text(" ".join(map(names.shown, flow.get("destinations", ()))) or "-"),
            bits(flow.get("rate", 0)),
            bits(flow.get("error", 0)),
            amount(flow.get("publications")),
        )
        for flow, name in flows
    ]


def _meshes(agents: Sequence[Watched]) -> list[Row]:
    """The rows of meshes from all agents together; meshes of most brokers first."""
    cores: dict[str, list[str]] = {}
    local: dict[str, list[str]] = {}
    carried: dict[str, list[str]] = {}
    names = _names(agents)
    for agent in agents:
        for mesh in agent.status.get("meshes", ()):
            filter_ = str(mesh.get("filter"))
            core = mesh.get("core")
            if core is not None and names.shown(core) not in cores.setdefault(filter_, []):
                cores[filter_].append(names.shown(core))
            if mesh.get("local"):
                local.setdefault(filter_, []).append(names.shown(agent.name))
            if mesh.get("member"):
                carried.setdefault(filter_, []).append(names.shown(agent.name))
    return [
        (
            Text(filter_ if filter_.isprintable() else repr(filter_)),
            *(
                Text(" ".join(names_of.get(filter_, ())) or "-")
                for names_of in (cores, local, carried)
            ),
        )
        for filter_ in sorted(
            {*cores, *local, *carried}, key=lambda f: (-len(carried.get(f, ())), f)
        )
    ]


def _cut(table: Table, rows: Sequence[Row], shown: int) -> Table:
    for row in rows[:shown]:
        table.add_row(*row)
    if len(rows) > shown:
        table.add_row(Text(f"and {len(rows) - shown} more", "dim"))
    if not rows:
        table.add_row(Text("none", "dim"))
    return table


def bar(share: float) -> Text:
    """A bar that shows how full something is, from 0 to 1."""
    share = min(1.0, max(0.0, share))
    filled = round(share * BAR_CELLS)
    colour = "red" if share >= FULL else "yellow" if share >= HALF else "green"
    return Text.assemble(("━" * filled, colour), ("─" * (BAR_CELLS - filled), "dim"))


def amount(value: float | None) -> str:
    """A number in at most six characters."""
    if value is None:
        return "-"
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if abs(value) >= factor:
            return f"{value / (1e3 if unit == 'k' else factor):.1f}{unit}"
    return f"{value:.1f}".removesuffix(".0") if value < 100 else f"{value:.0f}"


def size(value: float | None) -> str:
    """Bytes, for people."""
    if value is None:
        return "-"
    for unit in ("B", "KiB", "MiB"):
        if abs(value) < 1_024:
            return f"{value:.0f} {unit}"
        value /= 1_024
    return f"{value:.1f} GiB"


def seconds(value: float | None) -> str:
    """A delay, for people."""
    if value is None:
        return "-"
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.1f} s"
