"""The seven-node testbed of TBRouting: how long many items take, with and without shortest path.

Data comes in at 6 and its consumer is at 1. Without the shortest path it goes by 7, 4, 3 and 2, as
Figure 12 draws it; with it by 4 and 2 (Figure 13). Both times the same brokers and links are there:
for the long path, the links 6-4 and 4-2 cost more. Each broker on the path has a subscriber which
notes when it has 500, 1,000, ... 10,000 items, as the paper's counters do. An item is published
when the one before has arrived everywhere.

Node 5 is left out: the paper does not say what it is linked to. The edge router is 4, the first
router that data reaches on both paths; the paper does not say which it means.

Source: Chen 2020, 4.2, Figures 12 to 16.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from statistics import fmean
from typing import Final

from federator.protocol.parameters import Strategy
from federator.protocol.types import BrokerId
from lab.grid.topology import Graph, Link
from lab.grid.trial import Arrangement, Setting, TrialOutcome

TESTBED: Final = Graph(((6, 7), (4, 7), (3, 4), (2, 3), (1, 2), (4, 6), (2, 4)))
SOURCE: Final = BrokerId(6)
CONSUMER: Final = BrokerId(1)
EDGE_ROUTER: Final = BrokerId(4)
ITEMS: Final = 10_000
STEP: Final = 500
LINK_DELAY_MS: Final = 1.0

WITHOUT: Final = Setting(
    "without shortest path",
    Strategy.SHORTEST_PATH,
    redundancy=1,
    costs={Link(BrokerId(4), BrokerId(6)): 10, Link(BrokerId(2), BrokerId(4)): 10},
)
WITH: Final = Setting("with shortest path", Strategy.SHORTEST_PATH, redundancy=1)
BOTH: Final = (WITHOUT, WITH)

CHEN2020: Final = Arrangement(
    graph=TESTBED,
    link_delay_ms=LINK_DELAY_MS,
    subscribers=(CONSUMER,),
    publishers=(SOURCE,),
    publications=ITEMS,
    gap_ms=(0.0, 0.0),
    step=STEP,
)


def path_of(setting: Setting) -> tuple[BrokerId, ...]:
    """The brokers that data passes, behind the source."""
    return TESTBED.path(SOURCE, CONSUMER, setting.costs)[1:]


@dataclass(frozen=True, slots=True)
class Completion:
    """Completion times of one setting, in milliseconds, by number of items."""

    consumer: Mapping[int, float]  # at the consumer
    edge_router: Mapping[int, float]  # at the edge router
    average: Mapping[int, float]  # over the brokers on the path


def completion_of(outcome: TrialOutcome, step: int) -> Completion:
    """The completion times in an outcome, at as many items as arrived everywhere."""
    by_broker = {pair.subscriber: pair.arrivals.completed_ms for pair in outcome.pairs}
    sizes = range(min(map(len, by_broker.values())))

    def at(broker: BrokerId) -> dict[int, float]:
        return {step * (n + 1): by_broker[broker][n] for n in sizes}

    return Completion(
        consumer=at(CONSUMER),
        edge_router=at(EDGE_ROUTER),
        average={step * (n + 1): fmean(each[n] for each in by_broker.values()) for n in sizes},
    )


def is_faster(short: Completion, long: Completion) -> bool:
    """Whether the shortest path is faster at every size and place."""
    pairs = zip(astuple(short), astuple(long), strict=True)
    return all(
        a and a.keys() == b.keys() and all(a[size] < b[size] for size in a) for a, b in pairs
    )
