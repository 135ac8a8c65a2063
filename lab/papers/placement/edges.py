"""Delegation in a federation: which topics each edge broker owns, and what it keeps.

The hub of the federation wants everything that matches what it collects, as a central broker does.
What an edge owns and nobody outside wants, apart from the hub's collecting, is kept there.
Everything that a client subscribes to in the description still arrives; what a policy gives up is
the hub's copy of topics that an edge owns. A steerer does this live (docs/steering.md).

Source: Fawwaz 2022, 3; docs/placement.md 4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from federator.protocol.filters import FilterTrie, matches
from lab.papers.placement import policies
from lab.papers.placement.policies import Mask, Policy, Totals, Traffic


@dataclass(frozen=True, slots=True)
class Broker:
    """What the clients of one broker do."""

    id: int  # the broker's
    publishes: Mapping[str, float] = field(default_factory=dict)  # messages per second by topic
    subscribes: Mapping[str, int] = field(default_factory=dict)  # clients by topic filter


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
