"""The rules at the edge of one broker: what of it enters the federation, either way.

A broker that owns a topic keeps its publications at home; a broker that must not learn of
something does not ask for it. Rules are the operator's, or written by a planner; an agent obeys
them where publications of its own clients set out, and where its clients' filters are announced.
Publications that pass through from other brokers are nobody's business here.

Source: papers/distributed-broker-placement.txt, section 3.2; docs/placement.md, section 4.
"""

from collections.abc import Iterable, Sequence

from federator.protocol.filters import FilterTrie, contains

EVERYTHING = ("#",)


class EdgeRules:
    """The rules of one broker.

    Args:
        imports: Filters of clients are announced when one of these contains them.
        exports: Publications of clients may leave when one of these matches their topic,
        keep: and none of these does.
    """

    def __init__(
        self,
        *,
        imports: Sequence[str] = EVERYTHING,
        exports: Sequence[str] = EVERYTHING,
        keep: Sequence[str] = (),
    ) -> None:
        self.imports = tuple(imports)
        self.exports = tuple(exports)
        self.keep = tuple(keep)
        self._exports = _trie(exports)
        self._keep = _trie(keep)

    def announces(self, filter: str) -> bool:
        """Whether the federation may hear that our clients want ``filter``."""
        return any(contains(rule, filter) for rule in self.imports)

    def lets_out(self, topic: str) -> bool:
        """Whether what our clients publish on ``topic`` may leave."""
        return bool(self._exports.match(topic)) and not self._keep.match(topic)


def _trie(filters: Iterable[str]) -> FilterTrie:
    trie = FilterTrie()
    for filter in filters:
        trie.add(filter)
    return trie
