"""How alike two brokers are to their clients: strong or weak behaviour equivalence, or neither.

- **Strong** (A ~ B): the same ordered pair, X publishes and Y subscribes, has a topic session on
  both; the topics may differ.
- **Weak** (A ~~ B): the pair has one on both, in whichever order on each.
- **Weak by presence**, the third rule of equation (1): two clients publish or subscribe anything on
  both brokers. Table 11's B1 ~~ B2 holds by this rule only: on B2 both a and c just subscribe.

A pair is two different clients. The paper's printed rules are read as its Definitions 13 and 14
say; its table's "on/off" says whether the broker runs, and is not asked here: a broker that died
is exactly the one to be related.

Source: Chen 2020, 3.3, Definitions 13 and 14, equation (1).
"""

from dataclasses import dataclass
from enum import IntEnum

from federator.protocol.controller.flow_table import SessionFlowTable, topic_sessions
from federator.protocol.types import BrokerId


class Likeness(IntEnum):
    """How alike two brokers are; the smaller is the better substitute."""

    STRONG = 0
    WEAK = 1
    WEAK_BY_PRESENCE = 2
    NONE = 3

    @property
    def word(self) -> str:
        """The name of the likeness, for operators."""
        return ("strong", "weak", "weak (third rule)", "none")[self]


@dataclass(frozen=True, slots=True)
class Relation:
    """How alike two brokers are, and which pair of clients shows it.

    Attributes:
        clients: The pair: publisher and subscriber on the first broker, or just two clients of
            both.
        topics: The topics of their sessions on both brokers; empty by the third rule.
    """

    likeness: Likeness
    clients: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()

    @property
    def degree(self) -> int:
        """What choosing goes by: strong, weak, or none. Both weak rules weigh the same."""
        return (0, 1, 1, 2)[self.likeness]


def relate(table: SessionFlowTable, a: BrokerId, b: BrokerId) -> Relation:
    """How alike ``a`` and ``b`` are by the session flow table: the best rule that holds."""
    shared = table.shared_clients(a, b)
    if len(shared) < 2:
        return Relation(Likeness.NONE)
    on_a = topic_sessions(table.behaviours(a, shared))
    on_b = topic_sessions(table.behaviours(b, shared))
    for pair in sorted(on_a.keys() & on_b.keys()):
        return Relation(Likeness.STRONG, pair, (on_a[pair], on_b[pair]))
    for pair in sorted(on_a):
        back = (pair[1], pair[0])
        if back in on_b:
            return Relation(Likeness.WEAK, pair, (on_a[pair], on_b[back]))
    return Relation(Likeness.WEAK_BY_PRESENCE, (shared[0], shared[1]))
