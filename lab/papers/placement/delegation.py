"""The delegation paper's networks: random traffic.

Every publisher has a topic of its own. A subscription falls on a topic of the own network with
probability ``locality``, else on one of another network; within either group by rank^-k (k = 0:
evenly). Draws are independent: with 2 subscribers per topic on average, a topic has none with
probability exp(-2), which is what the paper's figures show.

Source: Fawwaz 2022, 5.1, Table 2; docs/placement.md 1.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lab.papers.placement.policies import Traffic

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Setting:
    """Table 2 and the three swept parameters."""

    networks: int = 10  # how many, at least 2 unless ``locality`` is 1
    publishers: int = 10_000  # per network, each with one topic and one message per second
    subscribers: int = 100  # per network
    subscriptions: int = 200  # topics per subscriber
    locality: float = 0.5  # chance that a subscription is to a topic of the own network, 0 to 1
    popularity: float = 0.0  # Zipf's exponent; 0 is uniform

    def __post_init__(self) -> None:
        if not 0 <= self.locality <= 1:
            raise ValueError(f"locality must be 0 to 1, got {self.locality}")
        if self.networks < 2 and self.locality < 1:
            raise ValueError("one network has no topics outside: locality must be 1")
        if min(self.publishers, self.subscribers, self.subscriptions) < 1:
            raise ValueError("publishers, subscribers and subscriptions must be at least 1")

    @property
    def topics(self) -> int:
        return self.networks * self.publishers


def draw(setting: Setting, *, seed: int) -> Traffic:
    """Random traffic; topic ``n * publishers + r`` is of network ``n`` and has rank ``r``."""
    rng = np.random.default_rng(seed)
    networks, publishers = setting.networks, setting.publishers
    draws = setting.subscribers * setting.subscriptions
    rank_chance = np.arange(1, publishers + 1, dtype=np.float64) ** -setting.popularity
    cumulative = np.cumsum(rank_chance / rank_chance.sum())
    counts = np.zeros((setting.topics, networks))
    for network in range(networks):
        inside = int(rng.binomial(draws, setting.locality))
        home = np.full(draws, network)
        home[inside:] += rng.integers(1, max(networks, 2), draws - inside)
        rank = np.minimum(np.searchsorted(cumulative, rng.random(draws)), publishers - 1)
        topic = (home % networks) * publishers + rank
        counts[:, network] = np.bincount(topic, minlength=setting.topics)
    published = np.zeros((setting.topics, networks))
    published[np.arange(setting.topics), np.repeat(np.arange(networks), publishers)] = 1.0
    return Traffic(published, counts)
