"""What crosses between one broker and the federation: rules, what is denied, and other names.

Clients know their broker's names, the federation its own. Everything that the control plane and
the tables see is in the federation's names; this is where the one becomes the other.

Source: docs/rules.md.
"""

from collections.abc import Iterable

from federator.protocol.filters.renames import Renames, TranslatedFilters
from federator.protocol.policy.rules import Denied, EdgeRules


class BrokerPolicy:
    """What crosses between our broker and the federation, and under which name.

    ``edge`` speaks of our broker's own names, ``denied`` of the federation's.
    """

    def __init__(
        self,
        edge: EdgeRules | None = None,
        denied: Denied | None = None,
        renames: Renames | None = None,
    ) -> None:
        self.edge = edge or EdgeRules()
        self.denied = denied or Denied()
        self.renames = renames or Renames()
        self._asked = TranslatedFilters(self.exported_filters)

    def allows_export(self, topic: str) -> bool:
        """Whether what our clients publish on what the federation calls ``topic`` may leave."""
        if self.denied.topic(topic):
            return False
        local = self.renames.inward(topic)
        return local is not None and self.edge.allows_export(local)

    def exported_filters(self, filter: str) -> tuple[str, ...]:
        """What the federation hears that we want when a client of ours wants ``filter``."""
        if not self.edge.announces(filter):
            return ()
        return tuple(f for f in self.renames.filter_outward(filter) if not self.denied.filter(f))

    def change(
        self, added: Iterable[str], removed: Iterable[str]
    ) -> tuple[frozenset[str], frozenset[str]]:
        """What our clients want and do not want any more, as the federation hears it."""
        return self._asked.change(added, removed)

    def follow(
        self, edge: EdgeRules, denied: Denied, wanted: Iterable[str]
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Go by other rules; what the federation hears otherwise of ``wanted``, as ``change``.

        ``wanted`` is all that our clients want.
        """
        self.edge, self.denied = edge, denied
        return self._asked.renew(wanted)

    @property
    def not_imported(self) -> int:
        """How many filters of our clients the federation does not hear of."""
        return self._asked.nameless

    def why_not(self, topic: str) -> str | None:
        """Why what our clients publish on their ``topic`` does not leave; ``None``: it may."""
        if topic.startswith("$"):
            return None  # which is explained without us
        name = self.renames.outward(topic)
        if name is None:
            return "its name is given to a renamed topic: [rules] rename keeps it here"
        if self.denied.topic(name):
            return "[rules] deny keeps it here"
        return None if self.edge.allows_export(topic) else "this broker's [rules] keep it here"
