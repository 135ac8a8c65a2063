"""``federator top``: agents at work, live.

Problems are red, loads have bars, the rest is plain. The same snapshots give the same picture. Rows
that do not fit are counted below the table.
"""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from federator.cli.agent_pages import Names, agent_url, agents_of_grid, get
from federator.cli.observe.loads import bits, filters_shown, load_shown
from federator.cli.observe.top_samples import Snapshot, Watched
from federator.cli.options import PLACE, config_option
from federator.errors import LinkError
from federator.protocol.telemetry.agent_status import LinkStatus

AT_ONCE_MAX: Final = 16
CURVE: Final = " ▁▂▃▄▅▆▇█"
BAR_CELLS: Final = 8
FIXED_LINES: Final = 12
"""Of a picture without rows: head, curves, tables' heads, lines between them, what is cut."""
ROWS_MIN: Final = 3
FULL, HALF = 0.9, 0.5
"""Of a queue: red from here, yellow from there."""

WIDE: Final = 130
ONLY_WIDE: Final = ("filters", "relayed/s", "missing", "custody", "memory")
"""Columns of brokers that are left out of terminals that are not ``WIDE``."""

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
        return Snapshot.of(time.monotonic(), get(url, "/status"))
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
    ready = sum(agent.page.ready for agent in agents)
    federations = {str(agent.page.federation) for agent in agents if agent.now}
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
        page, broker = agent.page, f"broker {names.shown(agent.name)}"
        if agent.now is None:
            yield Text(agent.trouble, "red", no_wrap=True)
        elif not page.ready:
            yield Text(f"{broker}: {page.ready_reason}", "red", no_wrap=True)
        elif page.standing.reasons:
            yield Text(f"{broker}: {'; '.join(page.standing.reasons)}", "yellow", no_wrap=True)


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
    columns = {head: cell for head, cell in BROKER_CELLS.items() if wide or head not in ONLY_WIDE}
    heads = ("broker", *columns)
    table = _table(*((head, "<" if head in ("broker", "state") else ">") for head in heads))
    names = _names(agents)
    for agent in agents:
        label = Text(names.shown(agent.name))
        if agent.now is None:
            table.add_row(label, Text("no answer", "bold red"))
        else:
            table.add_row(label, *(cell(agent) for cell in columns.values()))
    return table


def _state(agent: Watched) -> Text:
    page = agent.page
    if not page.ready:
        return Text("not ready", "bold red")
    if not page.standing.well:
        word = page.standing.word or ""
        return Text(word, "bold red" if word == "degraded" else "yellow")
    if page.discovery.widened:
        return Text("asks for all", "yellow")
    return Text("ready", "green")


def _alarming(value: float | None, colour: str) -> Text:
    return Text(amount(value), colour if value else "")


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f}%"


BROKER_CELLS: Final[Mapping[str, Callable[[Watched], RenderableType]]] = {
    "state": _state,
    "clients": lambda agent: amount(agent.value("failover.clients")),
    "filters": lambda agent: amount(agent.value("routing.filters")),
    "published/s": lambda agent: amount(agent.rate("counters.data.publications_in")),
    "delivered/s": lambda agent: amount(agent.rate("counters.data.delivered_publications")),
    "relayed/s": lambda agent: amount(agent.rate("counters.data.relayed")),
    "lost/s": lambda agent: _alarming(agent.rate(*LOST), "bold red"),
    "half within": lambda agent: seconds(agent.delay_s(0.5)),
    "99%": lambda agent: seconds(agent.delay_s(0.99)),
    "queued": lambda agent: size(agent.value("connections.send_queue_bytes")),
    "missing": lambda agent: _alarming(agent.value("custody.gaps"), "yellow"),
    "custody": lambda agent: size(agent.value("custody.log_bytes")),
    "cpu": lambda agent: _share(agent.rate("process.cpu_s")),
    "memory": lambda agent: size(agent.value("process.rss_bytes")),
}
"""The columns of an agent that answers, behind its broker."""


Row = tuple[RenderableType, ...]


def _links(agents: Sequence[Watched]) -> list[Row]:
    """Links that are down first, then the fullest, then by what goes over them."""
    rows: list[tuple[tuple[bool, float, float], Row]] = []
    names = _names(agents)
    for agent in agents:
        for link in agent.page.links:
            id_ = "?" if link.neighbour is None else str(link.neighbour)
            up = link.state == "up"
            queued = agent.value(f"traffic.{id_}.queue_bytes")
            limit = agent.value("connections.send_queue_limit")
            bytes_out = agent.rate(f"traffic.{id_}.bytes_out")
            row: Row = (
                Text(f"{names.shown(agent.name)} → {names.shown(id_)}"),
                Text("up", "green") if up else Text(link.state, "bold red"),
                "-" if link.rtt_ms is None or not up else f"{link.rtt_ms:.0f} ms",
                amount(link.cost),
                size(bytes_out),
                _load(link),
                size(queued),
                bar((queued or 0.0) / limit) if limit else "",
                _alarming(agent.rate(f"traffic.{id_}.drops"), "bold red"),
                "" if up else Text((link.reason or "")[:48], "dim"),
            )
            rows.append(((up, -(link.load or 0.0), -(bytes_out or 0.0)), row))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def _load(link: LinkStatus) -> Text:
    """How full a link is; nothing where its capacity is not known."""
    if link.load is None:
        return Text()
    colour = "bold red" if link.load >= FULL else "yellow" if link.load >= HALF else "green"
    return Text(load_shown(link) or "", colour)


def _flows(agents: Sequence[Watched]) -> list[Row]:
    """The heaviest flows of all agents, heaviest first."""
    names = _names(agents)
    flows = [(flow, agent.name) for agent in agents for flow in agent.page.flows.heaviest]
    return [
        (
            Text(filters_shown(flow)),
            Text(names.shown(name)),
            Text(" ".join(map(names.shown, flow.destinations)) or "-"),
            bits(flow.rate),
            bits(flow.error),
            amount(flow.publications),
        )
        for flow, name in sorted(flows, key=lambda pair: -pair[0].rate)
    ]


def _meshes(agents: Sequence[Watched]) -> list[Row]:
    """The rows of meshes from all agents together; meshes of most brokers first."""
    names = _names(agents)
    # By filter: cores, brokers with clients, and brokers that carry it; each once, in order.
    meshes: dict[str, tuple[dict[str, None], dict[str, None], dict[str, None]]] = {}
    for agent in agents:
        here = names.shown(agent.name)
        for mesh in agent.page.meshes:
            cores, local, carried = meshes.setdefault(mesh.filter, ({}, {}, {}))
            if mesh.core is not None:
                cores[names.shown(mesh.core)] = None
            if mesh.local:
                local[here] = None
            if mesh.member:
                carried[here] = None
    in_order = sorted(meshes.items(), key=lambda item: (-len(item[1][2]), item[0]))
    return [
        (
            Text(filter_ if filter_.isprintable() else repr(filter_)),
            *(Text(" ".join(brokers) or "-") for brokers in columns),
        )
        for filter_, columns in in_order
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
