"""What is known of one trace: what brokers on its way told, and which have not yet.

Source: docs/protocol.md 8.6; docs/observability.md, "A topic on its way".
"""

from dataclasses import dataclass, field

from federator.protocol.messages.operators import Traced
from federator.protocol.types import BrokerId

Hop = tuple[BrokerId, BrokerId]
"""From whom to whom."""


@dataclass(slots=True)
class Journey:
    """What is known of one trace."""

    start: Traced | None = None  # what the asked agent said, ``None`` before
    came: dict[Hop, Traced] = field(default_factory=dict)  # what was told of each hop
    names: dict[str, str] = field(default_factory=dict)  # of brokers on the way, as told, by id

    def take(self, told: Traced) -> None:
        """Note what one more broker tells."""
        self.names |= told.names
        if len(told.path) == 1:
            self.start = told
        else:
            self.came[told.path[-2], told.path[-1]] = told

    @property
    def waited_for(self) -> list[Hop]:
        """Hops that were begun and are not told of."""
        told = [each for each in (self.start, *self.came.values()) if each is not None]
        begun = [(each.path[-1], next_hop) for each in told for next_hop, _ in each.next_hops]
        return [hop for hop in begun if hop not in self.came]
