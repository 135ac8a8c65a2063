"""The kinds of log lines that discovery needs, and the settings that enable them.

Source: mosquitto.conf(5), ``log_type``.
"""

from collections.abc import Set as AbstractSet

from federator.protocol.discovery.log_lines import (
    NOTICE_TOPIC,
    SUBSCRIBE_TOPIC,
    UNSUBSCRIBE_TOPIC,
)

LOG_LINES = {
    SUBSCRIBE_TOPIC: "subscribe",
    UNSUBSCRIBE_TOPIC: "unsubscribe",
    NOTICE_TOPIC: "notice",
}
"""Topics of log lines, and the ``log_type`` that makes the broker publish them."""

LOG_KINDS = tuple(LOG_LINES.values())
# Naming any destination or type replaces the broker's defaults, so they are repeated.
_LOG_DEFAULTS = (
    "log_dest stderr",
    "log_dest topic",
    "log_type error",
    "log_type warning",
    "log_type information",
)


def missing_kinds(kinds: AbstractSet[str]) -> tuple[str, ...]:
    """Those of ``LOG_KINDS`` that are missing in ``kinds``."""
    return tuple(kind for kind in LOG_KINDS if kind not in kinds)


def lines_for_log(kinds: AbstractSet[str]) -> list[str]:
    """The lines of mosquitto.conf that are missing if only the kinds ``kinds`` are published."""
    missing = [f"log_type {kind}" for kind in missing_kinds(kinds)]
    return missing if kinds else [*_LOG_DEFAULTS, *missing]
