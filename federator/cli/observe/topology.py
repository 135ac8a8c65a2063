"""``federator topology``: the federation as one agent, or all agents of a grid, see it.

``--what-if remove=5`` reports instead what would break without some brokers or links.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import click

from federator.cli.agent_pages import Names, agent_url, agents_of_grid, get, url_option
from federator.cli.observe.drawing import DRAWINGS, add_announced, merge
from federator.cli.observe.status_page import status_page
from federator.cli.options import PLACE, columns, config_option, option
from federator.protocol.topology.graph import Pair, Strength, near_of, strength_of, without
from federator.protocol.types import BrokerId

BREAKS = 1
NAMED_MAX = 40
"""Brokers named in one line for people."""


@click.command(name="topology")
@config_option
@url_option
@click.option(
    "--state", type=PLACE, help="State file of `federator-lab grid --stay`: ask every agent in it."
)
@option("--format", "form", type=click.Choice(sorted(DRAWINGS)), default="text")
@click.option("--filter", "topic_filter", help="Draw the mesh of this filter only.")
@click.option(
    "--what-if",
    "losses",
    multiple=True,
    metavar="remove=ID[,ID] | cut=ID-ID[,ID-ID]",
    help="Say instead what would break without these brokers or links; exit code 1 if it would.",
)
@click.option("--json", "as_json", is_flag=True, help="As --format json.")
def command(
    config: Path | None,
    url: str | None,
    state: Path | None,
    form: str,
    topic_filter: str | None,
    losses: tuple[str, ...],
    as_json: bool,
) -> int:
    """Draw the federation: brokers, links, cores, and the parents of each broker.

    One agent knows its own links and parents, every core, and the links that others announce;
    --state asks all.
    """
    loss = Loss.parse(losses)
    urls = agents_of_grid(state) if state is not None else [agent_url(config, url)]
    if losses:
        outcome = judge(get(urls[0], "/topology"), loss)
        click.echo(json.dumps(as_document(outcome)) if as_json else "\n".join(as_lines(outcome)))
        return BREAKS if outcome.breaks else 0
    topology = merge([status_page(get(agent, "/status")) for agent in urls], topic_filter)
    add_announced(topology, get(urls[0], "/topology"))
    click.echo(DRAWINGS["json" if as_json else form](topology))
    return 0


@dataclass(frozen=True, slots=True)
class Loss:
    """Brokers and links that are imagined gone."""

    brokers: frozenset[BrokerId]
    links: frozenset[Pair]

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """Read ``remove=5,7`` and ``cut=3-8``. Raises ``click.UsageError``: it is neither."""
        brokers: set[BrokerId] = set()
        links: set[Pair] = set()
        for text in texts:
            verb, _, rest = text.partition("=")
            try:
                if verb == "remove":
                    brokers |= {BrokerId(int(id)) for id in rest.split(",")}
                elif verb == "cut":
                    for pair in rest.split(","):
                        a, b = map(int, pair.split("-"))
                        links.add((BrokerId(min(a, b)), BrokerId(max(a, b))))
                else:
                    raise ValueError
            except ValueError:
                wanted = "remove=5 or remove=5,7 (brokers) or cut=3-8 (a link) wanted"
                raise click.UsageError(f"--what-if {text!r}: {wanted}") from None
        return cls(frozenset(brokers), frozenset(links))


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The strength of the graph now and after the loss."""

    loss: Loss
    now: Strength
    then: Strength
    names: Names

    @property
    def breaks(self) -> bool:
        """Whether it falls into more parts."""
        return len(self.then.parts) > len(self.now.parts)


def judge(page: Mapping[str, Any], loss: Loss) -> WhatIf:
    """Hold ``loss`` against an agent's ``/topology``. Raises ``UsageError``: it is unknown."""
    brokers = [BrokerId(int(broker["broker"])) for broker in page["brokers"]]
    links = [(BrokerId(int(a)), BrokerId(int(b))) for a, b in page["links"]]
    names = Names(page.get("names"))
    if unknown := sorted(loss.brokers - set(brokers)):
        raise click.UsageError(
            f"--what-if: no broker {unknown[0]}: known are {_ids(brokers, names)}"
        )
    if strange := sorted(loss.links - set(links)):
        a, b = strange[0]
        raise click.UsageError(f"--what-if: no link {a}-{b}: federator topology lists them")
    now = near_of(brokers, links)
    then = without(near_of(brokers, set(links) - loss.links), loss.brokers)
    return WhatIf(loss, strength_of(now), strength_of(then), names)


def as_lines(what: WhatIf) -> list[str]:
    """The lines for people: the verdict first."""
    then, names = what.then, what.names
    rows = [("", "now", "then")]
    rows += [
        (head, str(show(what.now, names)), str(show(then, names))) for head, show in PROPERTIES
    ]
    lines = [verdict(what), "", *columns(rows)]
    if len(then.parts) > 1:
        lines += ["", "parts then:", *(f"  {_ids(part, names)}" for part in then.parts[:NAMED_MAX])]
    return lines


def verdict(what: WhatIf) -> str:
    """What would break, in one line."""
    then = what.then
    if what.breaks:
        apart = _ids([id for part in then.parts[1:] for id in part], what.names)
        return f"BREAKS: the federation falls into {len(then.parts)} parts; cut off: {apart}"
    if then.weak.brokers:
        parting = _ids(then.weak.brokers, what.names)
        return f"holds, but then the death of any of these parts it: {parting}"
    return "holds" + (", and survives any further death" if then.survives_any_death else "")


def as_document(what: WhatIf) -> dict[str, Any]:
    """The answer for programs."""
    return {
        "remove": sorted(what.loss.brokers),
        "cut": [list(link) for link in sorted(what.loss.links)],
        "breaks": what.breaks,
        "now": _strength(what.now),
        "then": _strength(what.then),
    }


def _strength(strength: Strength) -> dict[str, Any]:
    return {
        "brokers": strength.brokers,
        "links": strength.links,
        "parts": [list(part) for part in strength.parts],
        "diameter": strength.diameter,
        "degree_min": strength.degree_min,
        "degree_max": strength.degree_max,
        "articulation_points": list(strength.weak.brokers),
        "bridges": [list(link) for link in strength.weak.links],
        "survives_any_death": strength.survives_any_death,
    }


def _ids(ids: Iterable[BrokerId], names: Names) -> str:
    return _listed([names.shown(id) for id in ids])


def _pairs(pairs: Iterable[Pair], names: Names) -> str:
    return _listed([f"{names.shown(a)}-{names.shown(b)}" for a, b in pairs])


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return (", ".join(names[:NAMED_MAX]) or "none") + more


PROPERTIES: tuple[tuple[str, Callable[[Strength, Names], object]], ...] = (
    ("brokers", lambda strength, _: strength.brokers),
    ("links", lambda strength, _: strength.links),
    ("parts", lambda strength, _: len(strength.parts)),
    ("diameter", lambda s, _: "unknown" if s.diameter is None else s.diameter),
    ("links of a broker", lambda s, _: f"{s.degree_min} to {s.degree_max}"),
    ("brokers that it cannot lose", lambda s, names: _ids(s.weak.brokers, names)),
    ("links that it cannot lose", lambda s, names: _pairs(s.weak.links, names)),
)
"""Properties of a graph, with their names for people."""
