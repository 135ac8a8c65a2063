"""Loads of links and flows of clients from an agent's status, for people."""

from collections.abc import Mapping
from typing import Any

NAME_CHARS_MAX = 48


def bits(value: float) -> str:
    """A rate in bit/s, such as ``1.2 Mbit/s``."""
    for unit in ("bit/s", "kbit/s", "Mbit/s"):
        if value < 1_000:
            return f"{value:.0f} {unit}" if unit == "bit/s" else f"{value:.3g} {unit}"
        value /= 1_000
    return f"{value:.3g} Gbit/s"


def load_of(link: Mapping[str, Any]) -> float | None:
    """The load of a link as a share of its capacity, if the capacity is known."""
    load = link.get("load")
    return float(load) if isinstance(load, int | float) else None


def load_shown(link: Mapping[str, Any]) -> str | None:
    """The load of a link: ``31 % of 2 Mbit/s``, its rate alone, or nothing."""
    load, rate, capacity = load_of(link), link.get("rate"), link.get("capacity")
    if load is not None and capacity is not None:
        return f"{100 * load:.0f} % of {bits(capacity)}"
    return None if rate is None else bits(rate)


def filters_shown(flow: Mapping[str, Any]) -> str:
    """The filters of a flow, cut if they are long, and safe for a terminal."""
    text = " ".join(map(str, flow.get("filters", ())))
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= NAME_CHARS_MAX else f"{text[: NAME_CHARS_MAX - 1]}…"
