"""Delegation for a running federation: which filters each edge broker owns, and the rules for it.

The hub of the federation wants everything that matches what it collects, as a central broker does.
What an edge owns and nobody outside wants, apart from the hub's collecting, is kept there: those
topics become ``[rules] keep`` of that edge's agent. Everything that somebody subscribes to in the
traffic description still arrives; what a policy gives up is the hub's copy of topics that an edge
owns. A rule is a photograph of the traffic it was computed from: compute it again when outside
subscribers come to what is kept.

The traffic file says who publishes and subscribes what at which broker, as JSON:

    {"hub": 1, "collects": ["city/#"],
     "brokers": [{"id": 2, "publishes": {"city/2/temp": 1.0}, "subscribes": {"city/+/temp": 3}}]}

Rates are messages per second; a subscription names how many clients hold it. ``hub`` and
``collects`` are wanted for delegation only.

Source: Fawwaz 2022, 3; docs/placement.md 4.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from federator.errors import ConfigError
from federator.planner.delegation import policies
from federator.planner.delegation.policies import Mask, Policy, Totals, Traffic
from federator.protocol.filters import (
    FilterTrie,
    matches,
    may_travel,
    validate_filter,
    validate_topic,
)

BAD_DATA = 65
"""Exit code of ``sysexits.h``."""

BROKERS_MAX, TOPICS_MAX, CLIENTS_MAX = 10_000, 1_000_000, 1_000_000_000


@dataclass(frozen=True, slots=True)
class Broker:
    """What the clients of one broker do."""

    id: int  # the broker's
    publishes: Mapping[str, float]  # messages per second by topic
    subscribes: Mapping[str, int]  # clients by topic filter


@dataclass(frozen=True, slots=True)
class Description:
    """Who publishes and subscribes what where."""

    brokers: Sequence[Broker]  # the hub among them; each id once
    hub: int  # id of the broker that stands for the paper's central one
    collects: Sequence[str]  # filters that the hub asks for whatever anybody wants

    def __post_init__(self) -> None:
        ids = [broker.id for broker in self.brokers]
        if len(set(ids)) != len(ids):
            raise ValueError(f"broker ids {ids}: each once wanted")
        if self.hub not in ids:
            raise ValueError(f"hub {self.hub} is none of the brokers {ids}")


@dataclass(frozen=True, slots=True)
class Edge:
    """The plan for one edge broker."""

    id: int  # the broker's
    owns: tuple[str, ...]  # topics it manages
    keep: tuple[str, ...]  # those of them that do not leave it: the rule for its agent
    up: float  # messages per second it will send to the hub
    down: float  # messages per second it will get from the hub


def plan(description: Description, policy: Policy) -> list[Edge]:
    """What each broker but the hub owns and keeps under ``policy``."""
    topics, traffic = tabulate(description)
    totals = Totals(traffic)
    owned = policies.delegated(totals, policy)
    kept = owned & totals.local & ~totals.wanted_outside
    matched = [any(matches(f, t) for f in description.collects) for t in topics]
    collected: Mask = np.array(matched, dtype=bool).reshape(-1, 1)
    messages = policies.inter_broker_messages(totals, owned | ~collected)
    names = np.array(topics, dtype=object)
    return [
        Edge(
            id=broker.id,
            owns=tuple(names[owned[:, n] & (totals.local | totals.wanted)[:, n]]),
            keep=tuple(names[kept[:, n]]),
            up=float(messages[0, n]),
            down=float(messages[1, n]),
        )
        for n, broker in enumerate(description.brokers)
        if broker.id != description.hub
    ]


def tabulate(description: Description) -> tuple[list[str], Traffic]:
    """Topics that anybody publishes, ascending, and the traffic over them; wildcards expanded."""
    topics = sorted({topic for broker in description.brokers for topic in broker.publishes})
    shape = (len(topics), len(description.brokers))
    published, subscribers = np.zeros(shape), np.zeros(shape)
    for n, broker in enumerate(description.brokers):
        trie = FilterTrie()
        for filter in broker.subscribes:
            trie.add(filter)
        for t, topic in enumerate(topics):
            published[t, n] = broker.publishes.get(topic, 0.0)
            subscribers[t, n] = sum(broker.subscribes[found] for found in trie.match(topic))
    return topics, Traffic(published, subscribers)


def parse(text: str, *, name: str) -> Description:
    """The traffic in ``text``, JSON of the file ``name``. Raises ``ConfigError``: what to mend."""
    try:
        return _description(json.loads(text))
    except (ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(f"{name}: {error}: mend the file", exit_code=BAD_DATA) from None


def _description(value: object) -> Description:
    table = _table(value, "the file", {"hub", "collects", "brokers"})
    listed = table.get("brokers")
    if not isinstance(listed, list) or not 0 < len(listed) <= BROKERS_MAX:
        raise ValueError(f"brokers must be a list of 1 to {BROKERS_MAX}")
    brokers = [_broker(each, f"brokers[{index}]") for index, each in enumerate(listed)]
    if sum(len(b.publishes) + len(b.subscribes) for b in brokers) > TOPICS_MAX:
        raise ValueError(f"more than {TOPICS_MAX} topics and filters")
    collects = table.get("collects", [])
    if not isinstance(collects, list):
        raise ValueError("collects must be a list of topic filters")
    hub = table.get("hub", brokers[0].id)
    return Description(brokers, _id(hub, "hub"), [_filter(each, "collects") for each in collects])


def _broker(value: object, at: str) -> Broker:
    table = _table(value, at, {"id", "publishes", "subscribes"})
    publishes = _table(table.get("publishes", {}), f"{at}.publishes", None)
    subscribes = _table(table.get("subscribes", {}), f"{at}.subscribes", None)
    for filter, clients in subscribes.items():
        _filter(filter, f"{at}.subscribes")
        if type(clients) is not int or not 1 <= clients <= CLIENTS_MAX:
            raise ValueError(f"{at}.subscribes: {filter!r}: {clients!r} is no number of clients")
    id = _id(table.get("id"), f"{at}.id")
    for topic, rate in publishes.items():
        _travels(topic, f"{at}.publishes", "a topic", validate_topic)
        publishes[topic] = _rate(rate, f"{at}.publishes: {topic!r}")
    return Broker(id, publishes, subscribes)


def _table(value: object, at: str, known: set[str] | None) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{at} must be an object, got {type(value).__name__}")
    if known is not None and (unknown := sorted(set(value) - known)):
        raise ValueError(f"{at}: {unknown[0]!r} is unknown, one of {sorted(known)} wanted")
    return value


def _id(value: object, at: str) -> int:
    if type(value) is not int or not 0 <= value < 2**32:
        raise ValueError(f"{at}: {value!r} is no broker id")
    return value


def _rate(value: object, at: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{at}: {value!r} is no rate in messages per second")
    return float(value)


def _filter(value: object, at: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{at}: {value!r} is not a topic filter")
    return _travels(value, at, "a topic filter", validate_filter)


def _travels(text: str, at: str, what: str, validate: Callable[[str], str]) -> str:
    """``text``, checked to be ``what`` it should be, and of publications that leave a broker."""
    try:
        valid = validate(text)
    except ValueError as error:
        raise ValueError(f"{at}: {text[:60]!r} is not {what} ({error})") from None
    if not may_travel(valid):
        raise ValueError(f"{at}: {text[:60]!r} never leaves its broker")
    return valid
