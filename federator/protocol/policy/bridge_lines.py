"""Translates the ``topic`` lines of Mosquitto's bridges into renames and rules.

A bridge's line has a local and a remote name for a topic, and goes one way or both; so each line
needs a rename and a rule in each of its directions. But a broker has **one** map of names, whose
renames must be reversible, while a bridge may rename a topic differently on its way out and on its
way in. So the lines are tried in several readings, as wide as their prefixes or as narrow as their
patterns, and what a bridge does is compared with what renames and rules would do, topic by topic,
on **witnesses**: topics made from the filters and from where they meet. The reading with the fewest
differences is chosen, without renames that change nothing, and the remaining differences are
reported.

Of several matching lines the first with a prefix names a topic (Mosquitto's
``bridge__remap_topic``).

Source: mosquitto.conf(5), ``topic``; Mosquitto's src/bridge.c and src/db.c; docs/rules.md 2.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, Literal

from federator.protocol.filters import contains, matches, overlaps
from federator.protocol.filters.renames import Pair, Renames, check_pairs, is_prefix

DIRECTIONS: Final = ("out", "in", "both")

Way = Literal["out", "in"]

WAYS: Final[tuple[Way, ...]] = ("out", "in")


@dataclass(frozen=True, slots=True)
class BridgeLine:
    """One ``topic`` line of a bridge."""

    pattern: str
    direction: str
    local: str = ""
    remote: str = ""

    @property
    def local_filter(self) -> str:
        """Its filter at the broker that has the bridge configured."""
        return self.local + self.pattern

    @property
    def remote_filter(self) -> str:
        """Its filter at the other broker."""
        return self.remote + self.pattern

    def goes(self, way: Way) -> bool:
        """Whether the line carries publications that way."""
        return self.direction in (way, "both")

    @property
    def mirrored(self) -> "BridgeLine":
        """The line with the same effect, configured at the other broker."""
        direction = {"out": "in", "in": "out"}.get(self.direction, self.direction)
        return BridgeLine(self.pattern, direction, local=self.remote, remote=self.local)

    @property
    def wide(self) -> Pair:
        """A rename of all topics with its prefixes."""
        return self.local, self.remote

    @property
    def narrow(self) -> tuple[Pair, ...]:
        """Renames of no more than its pattern needs."""
        levels = self.pattern.split("/")
        head = next((at for at, level in enumerate(levels) if level in ("+", "#")), None)
        if head is None:
            return ((self.local_filter, self.remote_filter),)
        fixed = "".join(f"{level}/" for level in levels[:head])
        pair = (self.local + fixed, self.remote + fixed)
        if levels[head] == "#" and fixed:  # a/# matches a
            return (pair, (pair[0][:-1], pair[1][:-1]))
        return (pair,)


@dataclass(frozen=True, slots=True)
class Difference:
    """What ``line`` of ``bridge`` brings to ``was`` would come to ``now``; ``None``: nowhere."""

    bridge: int
    line: BridgeLine
    way: Way
    topic: str  # where it is published
    was: str
    now: str | None


@dataclass(frozen=True, slots=True)
class Counterpart:
    """Renames and rules with the same effect as some bridges of one broker.

    Attributes:
        refused: Lines that cannot be represented, each with the line that took their names.
        differs: Effects of the other lines that differ, one case for each line and way.
    """

    pairs: tuple[Pair, ...]
    lines: tuple[tuple[BridgeLine, ...], ...]
    refused: tuple[tuple[int, BridgeLine, BridgeLine], ...]
    differs: tuple[Difference, ...] = ()
    wrong: float = 0  # sum over lines and ways of the share of witnesses that differ


def filters_of(lines: Iterable[BridgeLine], way: Way, *, there: bool) -> list[str]:
    """The filters that ``lines`` carry that way, each once; ``there``: at the other broker."""
    every = _once(
        line.remote_filter if there else line.local_filter for line in lines if line.goes(way)
    )
    return [f for f in every if not any(f != other and contains(other, f) for other in every)]


@dataclass(frozen=True, slots=True)
class _Case:
    """The effect of a bridge on one publication."""

    bridge: int
    line: BridgeLine
    way: Way
    topic: str
    was: str


def counterpart(bridges: Sequence[Sequence[BridgeLine]]) -> Counterpart:
    """Renames and rules with an effect as close as possible to ``bridges`` of one broker.

    A line's two filters both end with ``/``, or neither; none starts with ``$``.
    """
    cases = [case for way in WAYS for case in _cases(bridges, way)]
    readings = [
        _reading(bridges, cases, plain_wide=plain, renamed_wide=renamed)
        for plain, renamed in product((True, False), repeat=2)
    ]
    return _without_idle_pairs(cases, min(readings, key=_cost))


def _cost(found: Counterpart) -> tuple[int, float, int]:
    return len(found.refused), found.wrong, len(found.pairs)


def _reading(
    bridges: Sequence[Sequence[BridgeLine]],
    cases: Sequence[_Case],
    *,
    plain_wide: bool,
    renamed_wide: bool,
) -> Counterpart:
    owners: dict[Pair, BridgeLine] = {}
    taken: list[list[BridgeLine]] = [[] for _ in bridges]
    refused: list[tuple[int, BridgeLine, BridgeLine]] = []
    for bridge, lines in enumerate(bridges):
        for line in lines:
            wide = plain_wide if line.local == line.remote else renamed_wide
            pairs = (line.wide,) if wide and all(map(is_prefix, line.wide)) else line.narrow
            in_the_way = _in_the_way(pairs, owners)
            if in_the_way is not None:
                refused.append((bridge, line, in_the_way))
                continue
            for pair in pairs:
                owners.setdefault(pair, line)
            taken[bridge].append(line)
    pairs = tuple(pair for pair in owners if pair != ("", ""))  # which changes nothing
    return _compared(cases, Counterpart(pairs, tuple(map(tuple, taken)), tuple(refused)))


def _in_the_way(pairs: Sequence[Pair], owners: dict[Pair, BridgeLine]) -> BridgeLine | None:
    """The line that has a name in one of ``pairs``, with another counterpart."""
    for here, there in pairs:
        for pair, owner in owners.items():
            if (pair[0] == here) != (pair[1] == there):
                return owner
    return None


def _compared(cases: Sequence[_Case], made: Counterpart) -> Counterpart:
    """``made`` with its differences from the bridges."""
    renames = Renames(made.pairs)
    differs: dict[tuple[int, BridgeLine, Way], Difference] = {}
    wrong, seen = Counter[tuple[int, BridgeLine, Way]](), Counter[tuple[int, BridgeLine, Way]]()
    for case in cases:
        if case.line not in made.lines[case.bridge]:
            continue
        out = case.way == "out"
        now = renames.outward(case.topic) if out else renames.inward(case.topic)
        crosses = now if out else case.topic
        allowed = filters_of(made.lines[case.bridge], case.way, there=True)
        if crosses is None or not any(matches(filter_, crosses) for filter_ in allowed):
            now = None
        key = case.bridge, case.line, case.way
        seen[key] += 1
        if now != case.was:
            wrong[key] += 1
            differs.setdefault(key, Difference(*key, case.topic, case.was, now))
    share = sum(wrong[key] / seen[key] for key in wrong)
    return replace(made, differs=tuple(differs.values()), wrong=share)


def _without_idle_pairs(cases: Sequence[_Case], found: Counterpart) -> Counterpart:
    """Remove renames without effect."""
    idle = True
    while idle:
        idle = False
        for pair in found.pairs:
            fewer = tuple(kept for kept in found.pairs if kept != pair)
            tried = _compared(cases, replace(found, pairs=fewer))
            if tried.wrong <= found.wrong:
                found, idle = tried, True
    assert check_pairs(found.pairs) is None, found.pairs
    return found


def carried(lines: Sequence[BridgeLine], topic: str, way: Way) -> tuple[BridgeLine | None, str]:
    """The line of a bridge's ``lines`` that carries ``topic`` that way, and the resulting topic.

    Ignores Mosquitto's result ``b/a`` for ``a`` when ``# out 1 a/ b/`` carries it.
    """
    first_match: BridgeLine | None = None
    for line in lines:
        old, new = (line.local, line.remote) if way == "out" else (line.remote, line.local)
        if line.goes(way) and topic.startswith(old) and matches(old + line.pattern, topic):
            if old or new:
                return line, new + topic[len(old) :]
            first_match = first_match or line
    return first_match, topic


def _cases(bridges: Sequence[Sequence[BridgeLine]], way: Way) -> Iterator[_Case]:
    """Topics at the publisher's side on which two maps of names can differ."""
    every = [line for lines in bridges for line in lines]
    halves = (half for line in every for pair in (line.wide, *line.narrow) for half in pair)
    met = [f for line in every for f in (line.local_filter, line.remote_filter)]
    met += [half + "#" if is_prefix(half) else half for half in halves]
    prefixes = _once(half for line in every for half in line.wide if is_prefix(half))
    met += [f"{one}{other}#" for one, other in product(prefixes, repeat=2)]  # renamed twice
    for bridge, lines in enumerate(bridges):
        filters = [
            line.local_filter if way == "out" else line.remote_filter
            for line in lines
            if line.goes(way)
        ]
        topics = (
            topic
            for filter in _once(filters)
            for other in _once(met)
            if overlaps(filter, other)
            for topic in _meeting(filter, other)
        )
        for topic in _once(topics):
            line, was = carried(lines, topic, way)
            if line is not None and was and not topic.startswith("$") and not was.startswith("$"):
                yield _Case(bridge, line, way, topic, was)


def _meeting(a: str, b: str) -> Iterator[str]:
    """Some topics that match both overlapping filters: as short as possible, and longer."""
    for more in (("w", "v"), ("w",), ()):
        x, y = _opened(a, more), _opened(b, more)
        length = max(len(x), len(y))
        x, y = _grown(a, x, length), _grown(b, y, length)
        if len(x) == len(y):
            met = "/".join(q if p == "+" else p for p, q in zip(x, y, strict=True))
            topic = "/".join("w" if level == "+" else level for level in met.split("/"))
            if matches(a, topic) and matches(b, topic):
                yield topic


def _opened(filter: str, more: Sequence[str]) -> list[str]:
    levels = filter.split("/")
    return [*levels[:-1], *("+" for _ in more)] if levels[-1] == "#" else levels


def _grown(filter: str, levels: list[str], length: int) -> list[str]:
    missing = length - len(levels) if filter.endswith("#") else 0
    return [*levels, *["+"] * missing]


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
