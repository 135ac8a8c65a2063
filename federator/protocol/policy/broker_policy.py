"""What crosses between one broker and the federation: rules, denied topics, and renames.

Clients use their broker's names, the federation its own. The control plane and the tables contain
only the federation's names; this module translates.

Source: docs/rules.md.
"""

from collections.abc import Iterable

from federator.protocol.filters.renames import Renames, TranslatedFilters
from federator.protocol.policy.rules import Denied, EdgeRules


class BrokerPolicy:
    """What crosses between our broker and the federation, and under which name.

    ``edge`` uses our broker's own names, ``denied`` the federation's.
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
        self._requested = TranslatedFilters(self.exported_filters)

    def allows_export(self, topic: str) -> bool:
        """Whether our clients' publications may leave on ``topic``, a name in the federation."""
        if self.denied.topic(topic):
            return False
        local = self.renames.inward(topic)
        return local is not None and self.edge.allows_export(local)

    def exports(self, filter: str) -> bool:
        """Whether anything on ``filter`` may leave our broker."""
        return bool(self.exported_filters(filter))

    def exported_filters(self, filter: str) -> tuple[str, ...]:
        """The filters that we announce when a client of ours wants ``filter``."""
        if not self.edge.announces(filter):
            return ()
        return tuple(f for f in self.renames.filter_outward(filter) if not self.denied.filter(f))

    def change(
        self, added: Iterable[str], removed: Iterable[str]
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Translate a change of our clients' filters into a change of announced filters."""
        return self._requested.change(added, removed)

    def follow(
        self, edge: EdgeRules, denied: Denied, wanted: Iterable[str]
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Use other rules; return the resulting change of announced filters, like ``change``.

        ``wanted`` is all that our clients want.
        """
        self.edge, self.denied = edge, denied
        return self._requested.renew(wanted)

    @property
    def not_imported(self) -> int:
        """The number of our clients' filters that are not announced."""
        return self._requested.nameless

    def why_not(self, topic: str) -> str | None:
        """Why our clients' publications on their ``topic`` do not leave; ``None``: they may."""
        if topic.startswith("$"):
            return None  # explained elsewhere
        name = self.renames.outward(topic)
        if name is None:
            return "its name is given to a renamed topic: [rules] rename keeps it here"
        if self.denied.topic(name):
            return "[rules] deny keeps it here"
        return None if self.edge.allows_export(topic) else "this broker's [rules] keep it here"
