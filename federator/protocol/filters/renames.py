"""Other names for this broker's topics in the federation: ``plant7/`` here, ``eu/plant7/`` there.

A rename is a pair of prefixes, and all renames together one map between two sets of names. What
our clients publish on ``plant7/x`` leaves as ``eu/plant7/x`` and what arrives as that is published
here on ``plant7/x``; other names stay as they are. So that the map can be walked back, the names
that it would give to two things are given to one: a local topic that looks like a federation name
(``eu/plant7/x``) stays home, and a federation topic that looks like a local name (``plant7/x``)
is not delivered here. Both ways round are then the identity wherever there is a way.

A filter stands for a set of topics, and its translation for the images of that set: ``+/x`` asks
for ``+/x`` and for ``eu/plant7/x``. Where a wildcard meets the prefix a filter becomes several.
The translation is never too narrow. It is too wide where a wildcard also covers names that belong
to the other side of a rename: MQTT has no filter for "all of ``eu/#`` but ``eu/plant7/#``".

Source: mosquitto.conf(5), ``topic`` of bridges, whose prefixes this takes over; docs/rules.md 2.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from federator.protocol.filters import LEVELS_MAX, contains, validate_topic
from federator.protocol.filters.syntax import TEXT_BYTES_MAX

Pair = tuple[str, str]
"""A local prefix and the federation's, each ending with ``/``."""

Translate = Callable[[str], tuple[str, ...]]


class Renames:
    """The renames of one broker, checked with ``check_pairs``."""

    def __init__(self, pairs: Sequence[Pair] = ()) -> None:
        self.pairs = tuple(pairs)
        self._back = tuple((there, here) for here, there in self.pairs)

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def outward(self, topic: str) -> str | None:
        """The federation's name of our ``topic``; ``None`` when it has none and stays here."""
        return _renamed(topic, self.pairs)

    def inward(self, topic: str) -> str | None:
        """The name here of the federation's ``topic``; ``None`` when it has none."""
        return _renamed(topic, self._back)

    def filter_outward(self, filter: str) -> tuple[str, ...]:
        """What to ask the federation for when a client of ours asks for ``filter``."""
        return _translated(filter, self.pairs)

    def filter_inward(self, filter: str) -> tuple[str, ...]:
        """What to subscribe here when the federation asks for ``filter``."""
        return _translated(filter, self._back)


class TranslatedFilters:
    """A set of filters kept in translation: two may share a translated one."""

    def __init__(self, translate: Translate) -> None:
        self._translate = translate
        self._held: Counter[str] = Counter()
        self.nameless = 0  # how many have no translation

    def change(
        self, added: Iterable[str], removed: Iterable[str]
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Return what is added and removed in translation. Filters removed must have been added."""
        before: dict[str, bool] = {}
        for step, filters in ((1, added), (-1, removed)):
            for filter in filters:
                names = self._translate(filter)
                self.nameless += 0 if names else step
                for name in names:
                    before.setdefault(name, self._held[name] > 0)
                    self._held[name] += step
        for name in before:
            if not self._held[name]:
                del self._held[name]
        now = self._held
        return (
            frozenset(name for name, was in before.items() if not was and name in now),
            frozenset(name for name, was in before.items() if was and name not in now),
        )

    def renew(self, filters: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
        """Hold ``filters``, all anew, for they translate otherwise; as ``change``."""
        before, self._held, self.nameless = self._held, Counter(), 0
        self.change(filters, ())
        now, then = self._held.keys(), before.keys()
        return frozenset(now - then), frozenset(then - now)


def check_pairs(pairs: Sequence[Pair]) -> tuple[int, int, str] | None:
    """The first mistake in ``pairs``: which pair, which of its halves, and ``what: how to mend``.

    Prefixes of different pairs may not begin with one another: a name would have two renames.
    """
    for at, pair in enumerate(pairs):
        for half, prefix in enumerate(pair):
            if (what := _wrong_prefix(prefix)) is not None:
                return at, half, what
        if pair[0] == pair[1]:
            return at, 1, f"{pair[1]!r} is the local prefix too: give another name, or remove it"
    for at, pair in enumerate(pairs):
        for earlier in range(at):
            for half, prefix in enumerate(pair):
                for other in pairs[earlier]:
                    if prefix.startswith(other) or other.startswith(prefix):
                        what = f"{prefix!r} overlaps {other!r} of rename[{earlier}]"
                        return at, half, f"{what}: give every topic one rename"
    return None


def _wrong_prefix(prefix: str) -> str | None:
    mend = "write one like plant7/"
    if not prefix.endswith("/") or prefix == "/":
        return f"{prefix[:60]!r} does not end with / after a name: {mend}"
    if prefix.startswith("$"):
        return f"{prefix[:60]!r} starts with $, which never leaves a broker: {mend}"
    try:
        validate_topic(prefix)
    except ValueError as error:
        return f"{prefix[:60]!r} is no beginning of a topic ({error}): {mend}"
    return None


def _renamed(topic: str, pairs: Sequence[Pair]) -> str | None:
    for old, new in pairs:
        if topic.startswith(old):
            renamed = new + topic[len(old) :]
            return renamed if _fits(renamed) else None
    for _, new in pairs:
        if topic.startswith(new):
            return None
    return topic


def _translated(filter: str, pairs: Sequence[Pair]) -> tuple[str, ...]:
    """The images of ``filter``, none inside another, sorted."""
    if not pairs:
        return (filter,)
    found = []
    unchanged = True
    for old, new in pairs:
        rest = _beyond(filter, old)
        if rest is not None:
            if _fits(new + rest):
                found.append(new + rest)
            # Everything it matches has the prefix, so nothing keeps its name.
            unchanged = unchanged and not filter.startswith(old)
            if filter == old + "#":
                found.append(old.removesuffix("/"))  # which has no prefix: it keeps its name
        if filter.startswith(new):  # names that are nobody's here
            unchanged = False
            if filter == new + "#":
                found.append(new.removesuffix("/"))
    if unchanged:
        found.append(filter)
    return tuple(
        sorted({f for f in found if not any(other != f and contains(other, f) for other in found)})
    )


def _fits(text: str) -> bool:
    """Whether a longer name is still one that brokers take."""
    return text.count("/") < LEVELS_MAX and len(text.encode()) <= TEXT_BYTES_MAX


def _beyond(filter: str, prefix: str) -> str | None:
    """What ``filter`` asks for below ``prefix``; ``None`` when nothing."""
    levels = filter.split("/")
    names = prefix.split("/")[:-1]
    for at, name in enumerate(names):
        if at >= len(levels):
            return None
        if levels[at] == "#":
            return "#"
        if levels[at] not in (name, "+"):
            return None
    rest = levels[len(names) :]
    return "/".join(rest) if rest else None
