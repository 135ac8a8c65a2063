"""Loads of links and flows of clients from an agent's status, for people."""

from federator.cli.observe.status_page import Flow
from federator.protocol.telemetry.agent_status import LinkStatus

NAME_CHARS_MAX = 48


def bits(value: float) -> str:
    """A rate in bit/s, such as ``1.2 Mbit/s``."""
    for unit in ("bit/s", "kbit/s", "Mbit/s"):
        if value < 1_000:
            return f"{value:.0f} {unit}" if unit == "bit/s" else f"{value:.3g} {unit}"
        value /= 1_000
    return f"{value:.3g} Gbit/s"


def load_shown(link: LinkStatus) -> str | None:
    """The load of a link: ``31 % of 2 Mbit/s``, its rate alone, or nothing."""
    if link.load is not None and link.capacity is not None:
        return f"{100 * link.load:.0f} % of {bits(link.capacity)}"
    return None if link.rate is None else bits(link.rate)


def filters_shown(flow: Flow) -> str:
    """The filters of a flow, cut if they are long, and safe for a terminal."""
    text = " ".join(flow.filters)
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= NAME_CHARS_MAX else f"{text[: NAME_CHARS_MAX - 1]}…"
