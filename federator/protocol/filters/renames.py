"""Other names for this broker's topics in the federation: ``plant7/`` here, ``eu/plant7/`` there.

A rename is a pair of prefixes, and all renames together form one map between two sets of names.
What our clients publish on ``plant7/x`` leaves as ``eu/plant7/x``, and what arrives as that is
published here on ``plant7/x``; other names stay as they are, which is the pair of two empty
prefixes. The **longest** prefix of a topic gives its other name. So that the map is reversible, a
name that does not map back to its source is invalid: a local topic that looks like a federation
name (``eu/plant7/x``) stays home, and a federation topic that looks like a local name
(``plant7/x``) is not delivered here. Both round trips are then the identity wherever they are
defined. With an empty local prefix all our topics are renamed, with an empty one there only topics
with the local prefix leave.

A filter stands for a set of topics, and its translation for the images of that set: ``+/x`` asks
for ``+/x`` and for ``eu/plant7/x``. Where a wildcard meets the prefix a filter becomes several. The
translation is never too narrow. It is too wide where a wildcard also covers names that belong to
another rename: MQTT has no filter for "all of ``eu/#`` but ``eu/plant7/#``".

Source: mosquitto.conf(5), ``topic`` of bridges, whose prefixes this adopts; docs/rules.md 2.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from federator.protocol.filters import LEVELS_MAX, contains, matches, validate_topic
from federator.protocol.filters.syntax import TEXT_BYTES_MAX

Pair = tuple[str, str]
"""A local prefix and the federation's, each empty or ending with ``/``; or two whole topics."""

Translate = Callable[[str], tuple[str, ...]]


class Renames:
    """The renames of one broker, checked with ``check_pairs``."""

    def __init__(self, pairs: Sequence[Pair] = ()) -> None:
        self.pairs = tuple(pairs)
        every = list(pairs)
        if all(here and there for here, there in pairs):
            every.append(("", ""))  # other names stay as they are
        self._out = sorted(every, key=_longest_first)
        self._in = sorted(((there, here) for here, there in every), key=_longest_first)

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def outward(self, topic: str) -> str | None:
        """The federation's name of our ``topic``; ``None`` when it has none and stays here."""
        return _renamed(topic, self._out, self._in)

    def inward(self, topic: str) -> str | None:
        """The name here of the federation's ``topic``; ``None`` when it has none."""
        return _renamed(topic, self._in, self._out)

    def filter_outward(self, filter: str) -> tuple[str, ...]:
        """The filters to announce to the federation when a client of ours wants ``filter``."""
        return _translated(filter, self._out, self._in) if self.pairs else (filter,)

    def filter_inward(self, filter: str) -> tuple[str, ...]:
        """The filters to subscribe here when the federation wants ``filter``."""
        return _translated(filter, self._in, self._out) if self.pairs else (filter,)


class TranslatedFilters:
    """Keeps a set of filters in translation: several may share a translated one."""

    def __init__(self, translate: Translate) -> None:
        self._translate = translate
        self._held: Counter[str] = Counter()
        self.nameless = 0  # number of filters without a translation

    def change(
        self, added: Iterable[str], removed: Iterable[str]
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Return the translated additions and removals. Filters removed must have been added."""
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
        """Replace all filters, because they now translate differently; like ``change``."""
        before, self._held, self.nameless = self._held, Counter(), 0
        self.change(filters, ())
        now, then = self._held.keys(), before.keys()
        return frozenset(now - then), frozenset(then - now)


def check_pairs(pairs: Sequence[Pair]) -> tuple[int, int, str] | None:
    """The first mistake in ``pairs``: which pair, which of its halves, and ``what: how to mend``.

    Two pairs may share no half, or a name would have two counterparts.
    """
    for at, pair in enumerate(pairs):
        for half, prefix in enumerate(pair):
            if (what := _wrong_prefix(prefix)) is not None:
                return at, half, what
        if is_prefix(pair[0]) != is_prefix(pair[1]):
            what = f"{pair[1]!r} and {pair[0]!r} are a topic and a beginning of topics"
            return at, 1, f"{what}: end both with /, or none"
        for half, prefix in enumerate(pair):
            for earlier in range(at):
                if prefix == pairs[earlier][half]:
                    what = f"{prefix!r} is that of rename[{earlier}], too"
                    return at, half, f"{what}: give every topic one rename"
    for at, (here, there) in enumerate(pairs):
        others = Renames([*pairs[:at], *pairs[at + 1 :]])
        if here == there and others.outward(here or "x") == (here or "x"):
            return at, 1, f"{there!r} is the local prefix too: give another name, or remove it"
    return None


def is_prefix(half: str) -> bool:
    """Whether ``half`` is a prefix of topics, not one whole topic."""
    return not half or half.endswith("/")


def _wrong_prefix(prefix: str) -> str | None:
    mend = "write one like plant7/"
    if prefix.startswith("$"):
        return f"{prefix[:60]!r} starts with $, which never leaves a broker: {mend}"
    if not prefix:
        return None
    try:
        validate_topic(prefix)
    except ValueError as error:
        return f"{prefix[:60]!r} is no beginning of a topic ({error}): {mend}"
    return None


def _longest_first(pair: Pair) -> int:
    return -len(pair[0])


def _named(topic: str, pairs: Sequence[Pair]) -> str:
    """The other name of ``topic`` by the first of ``pairs`` that applies; empty: none does."""
    for old, new in pairs:
        if topic == old or (is_prefix(old) and topic.startswith(old)):
            return new + topic[len(old) :]
    return ""


def _renamed(topic: str, pairs: Sequence[Pair], back: Sequence[Pair]) -> str | None:
    if topic.startswith("$"):
        return topic
    other = _named(topic, pairs)
    if not _may_be_named(other) or _named(other, back) != topic:
        return None
    return other


def _translated(filter: str, pairs: Sequence[Pair], back: Sequence[Pair]) -> tuple[str, ...]:
    """The images of ``filter``, none inside another, sorted."""
    if filter.startswith("$"):
        return (filter,)
    images = set()
    for old, new in pairs:
        if not is_prefix(old):
            if matches(filter, old) and _renamed(old, pairs, back) == new:
                images.add(new)
            continue
        if (rest := _beyond(filter, old)) is None:
            continue
        part, image = old + rest, new + rest  # what it matches below the prefix, and its name
        owned = _owner(part, old, pairs)
        if owned is not None and part == owned + "#":  # which matches a topic without the prefix
            images.add(_renamed(owned[:-1], pairs, back) or "")
        taken = _owner(image, new, back)
        if taken is not None and image == taken + "#":
            here = _renamed(taken[:-1], back, pairs)
            images.add(taken[:-1] if here and matches(filter, here) else "")
        if owned is None and taken is None:
            images.add(image)
    names = {f for f in images if _may_be_named(f)}
    return tuple(sorted(f for f in names if not any(o != f and contains(o, f) for o in names)))


def _owner(filter: str, prefix: str, pairs: Sequence[Pair]) -> str | None:
    """A prefix longer than ``prefix`` that has all that ``filter`` matches, or is that topic."""
    for old, _ in pairs:
        if len(old) > len(prefix) and (filter.startswith(old) if is_prefix(old) else filter == old):
            return old
    return None


def _may_be_named(name: str) -> bool:
    return bool(name) and not name.startswith("$") and _fits(name)


def _fits(text: str) -> bool:
    """Whether brokers accept a name of this length."""
    return text.count("/") < LEVELS_MAX and len(text.encode()) <= TEXT_BYTES_MAX


def _beyond(filter: str, prefix: str) -> str | None:
    """The part of ``filter`` below ``prefix``; ``None`` when there is none."""
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
