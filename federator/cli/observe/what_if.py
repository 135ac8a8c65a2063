"""What would break if brokers or links were gone: ``federator topology --what-if remove=5``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from federator.cli.options import columns
from federator.protocol.topology.graph import Pair, Strength, near_of, strength_of, without
from federator.protocol.types import BrokerId

NAMED_MAX = 40
"""Brokers named in one line for people."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Brokers and links that are imagined gone."""

    brokers: frozenset[BrokerId]
    links: frozenset[Pair]

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "Loss":
        """Read ``remove=5,7`` and ``cut=3-8``.

        Raises:
            click.UsageError: It is neither.
        """
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


def judge(page: Mapping[str, Any], loss: Loss) -> WhatIf:
    """Hold ``loss`` against what an agent knows, which is its ``/topology``.

    Raises:
        click.UsageError: It knows no such broker or link.
    """
    brokers = [BrokerId(int(broker["broker"])) for broker in page["brokers"]]
    links = [(BrokerId(int(a)), BrokerId(int(b))) for a, b in page["links"]]
    if unknown := sorted(loss.brokers - set(brokers)):
        raise click.UsageError(f"--what-if: no broker {unknown[0]}: known are {_ids(brokers)}")
    if strange := sorted(loss.links - set(links)):
        a, b = strange[0]
        raise click.UsageError(f"--what-if: no link {a}-{b}: federator topology lists them")
    now = near_of(brokers, links)
    then = without(near_of(brokers, set(links) - loss.links), loss.brokers)
    return WhatIf(loss, strength_of(now), strength_of(then))


def as_lines(what: WhatIf) -> list[str]:
    """The lines for people: the verdict first."""
    now, then = what.now, what.then
    rows: list[tuple[str, object, object]] = [
        ("", "now", "then"),
        ("brokers", now.brokers, then.brokers),
        ("links", now.links, then.links),
        ("parts", len(now.parts), len(then.parts)),
        ("diameter", _diameter(now), _diameter(then)),
        ("links of a broker", _degrees(now), _degrees(then)),
        ("brokers that it cannot lose", _ids(now.weak.brokers), _ids(then.weak.brokers)),
        ("links that it cannot lose", _pairs(now.weak.links), _pairs(then.weak.links)),
    ]
    lines = [verdict(what), "", *columns(rows)]
    if len(then.parts) > 1:
        lines += ["", "parts then:", *(f"  {_ids(part)}" for part in then.parts[:NAMED_MAX])]
    return lines


def verdict(what: WhatIf) -> str:
    """What would break, in one line."""
    then = what.then
    if len(then.parts) > len(what.now.parts):
        apart = _ids([id for part in then.parts[1:] for id in part])
        return f"BREAKS: the federation falls into {len(then.parts)} parts; cut off: {apart}"
    if then.weak.brokers:
        return f"holds, but then the death of any of these parts it: {_ids(then.weak.brokers)}"
    return "holds" + (", and survives any further death" if then.survives_any_death else "")


def as_document(what: WhatIf) -> dict[str, Any]:
    """The answer for programs."""
    return {
        "remove": sorted(what.loss.brokers),
        "cut": [list(link) for link in sorted(what.loss.links)],
        "breaks": len(what.then.parts) > len(what.now.parts),
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


def _diameter(strength: Strength) -> str:
    return "unknown" if strength.diameter is None else str(strength.diameter)


def _degrees(strength: Strength) -> str:
    return f"{strength.degree_min} to {strength.degree_max}"


def _ids(ids: Iterable[BrokerId]) -> str:
    return _listed([str(id) for id in ids])


def _pairs(pairs: Iterable[Pair]) -> str:
    return _listed([f"{a}-{b}" for a, b in pairs])


def _listed(known: Sequence[str]) -> str:
    more = f" and {len(known) - NAMED_MAX} more" if len(known) > NAMED_MAX else ""
    return (", ".join(known[:NAMED_MAX]) or "none") + more
