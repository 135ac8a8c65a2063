"""The kinds of lines of a broker's log that discovery lives on, and what has them told.

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
"""Of lines of the log, and the ``log_type`` that has the broker tell them."""

LOG_KINDS = tuple(LOG_LINES.values())
# Naming any destination or type replaces the broker's defaults, so they are repeated.
_LOG_DEFAULTS = (
    "log_dest stderr",
    "log_dest topic",
    "log_type error",
    "log_type warning",
    "log_type information",
)


def untold(told: AbstractSet[str]) -> tuple[str, ...]:
    """Those of ``LOG_KINDS`` that are missing in ``told``."""
    return tuple(kind for kind in LOG_KINDS if kind not in told)


def lines_for_log(told: AbstractSet[str]) -> list[str]:
    """The lines of mosquitto.conf that are missing where of ``LOG_KINDS`` only these are told."""
    missing = [f"log_type {kind}" for kind in untold(told)]
    return missing if told else [*_LOG_DEFAULTS, *missing]
