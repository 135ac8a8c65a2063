"""Which topics may cross which boundary: of one broker, of one link, of the federation.

A broker that owns a topic keeps its publications at home; a broker that must not receive a topic
does not ask for it. Rules are written by the operator or a planner. There are three boundaries:

- the **edge** of our broker: where publications of its own clients leave, and where its clients'
  filters are announced;
- a **link**: what we send to one neighbour and what we accept from it, whatever its origin;
- what is **denied** to the federation: it crosses no boundary of ours in either direction.

A rule is a list of filters and applies to topics. Announcements name filters for the whole
federation, and all agents share their digests, so a link's rules hide no filter: they stop
publications.

Source: Fawwaz 2022, 3.2; docs/placement.md 4; docs/rules.md 1.
"""

from collections.abc import Callable, Iterable, Sequence

from federator.protocol.filters import FilterTrie, contains

EVERYTHING = ("#",)


class EdgeRules:
    """The rules of one broker. Topics and filters are the broker's own, before any renaming."""

    def __init__(
        self,
        *,
        imports: Sequence[str] = EVERYTHING,
        exports: Sequence[str] = EVERYTHING,
        keep: Sequence[str] = (),
    ) -> None:
        self.imports = tuple(imports)  # filters of clients are announced when one contains them
        self.exports = tuple(exports)  # publications of clients may leave when one matches,
        self.keep = tuple(keep)  # and none of these does
        self._exports = _trie(exports)
        self._keep = _trie(keep)

    def announces(self, filter: str) -> bool:
        """Whether we may announce that our clients want ``filter``."""
        return any(contains(rule, filter) for rule in self.imports)

    def allows_export(self, topic: str) -> bool:
        """Whether our clients' publications on ``topic`` may leave."""
        return bool(self._exports.match(topic)) and not self._keep.match(topic)


class Denied:
    """Topics that cross no boundary of ours: they are neither sent, nor accepted, nor forwarded."""

    def __init__(self, filters: Sequence[str] = ()) -> None:
        self.filters = tuple(filters)
        self._trie = _trie(filters)

    def topic(self, topic: str) -> bool:
        """Whether publications on ``topic`` are denied."""
        return bool(self.filters) and bool(self._trie.match(topic))

    def filter(self, filter: str) -> bool:
        """Whether everything that ``filter`` matches is denied by one of ours."""
        return any(contains(denied, filter) for denied in self.filters)


class LinkRules:
    """The rules of the link to one neighbour. Topics are those of the federation."""

    def __init__(
        self,
        *,
        imports: Sequence[str] = EVERYTHING,
        exports: Sequence[str] = EVERYTHING,
        deny: Sequence[str] = (),
    ) -> None:
        # Publications are accepted from the neighbour when one matches,
        self.imports = tuple(imports)
        self.exports = tuple(exports)  # and sent to it when one of these does,
        self.deny = tuple(deny)  # and never, in either direction, when one of these does
        self._denied = _trie(deny)
        self._in = _trie(imports)
        self._out = _trie(exports)

    @property
    def filters(self) -> tuple[tuple[str, ...], ...]:
        """All three lists."""
        return self.imports, self.exports, self.deny

    @property
    def stops_nothing(self) -> bool:
        """Whether everything may cross, so that no check is needed."""
        return not self.deny and "#" in self.imports and "#" in self.exports

    def allows_import(self, topic: str) -> bool:
        """Whether a publication on ``topic`` may come from the neighbour."""
        return bool(self._in.match(topic)) and not self._denied.match(topic)

    def allows_export(self, topic: str) -> bool:
        """Whether a publication on ``topic`` may go to the neighbour."""
        return bool(self._out.match(topic)) and not self._denied.match(topic)


def in_text(ask: Callable[[str], bool]) -> Callable[[bytes], bool]:
    """Return ``ask`` for topics in wire form; ``False`` for what is not UTF-8."""

    def about(topic: bytes) -> bool:
        try:
            return ask(topic.decode())
        except UnicodeDecodeError:
            return False

    return about


def conflict(
    *, imports: Sequence[str], exports: Sequence[str], against: Sequence[str]
) -> tuple[str, int, str] | None:
    """The first rule that can never apply, because one of ``against`` forbids all that it allows.

    Returns ``"import"`` or ``"export"``, the rule's index in its list, and the forbidding filter.
    """
    for name, rules in (("import", imports), ("export", exports)):
        for at, rule in enumerate(rules):
            for other in against:
                if contains(other, rule):
                    return name, at, other
    return None


def _trie(filters: Iterable[str]) -> FilterTrie:
    trie = FilterTrie()
    for filter in filters:
        trie.add(filter)
    return trie
