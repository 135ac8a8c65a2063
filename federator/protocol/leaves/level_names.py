"""How many names a level of topics has, as far as was seen: what a ``+`` there lets through.

``site/+/door/set`` and ``site/7/+/set`` have as many levels, and yet the one asks for every site of
the world and the other for the few devices of one. Who counts the names that were seen at each
level, in filters that are wanted and in topics that came, knows which is which: a hundred sites,
five devices. Names are counted below each first level apart, for trees of topics differ by that.

Only whole powers of ``FAN_OUT`` count, so what was decided by them seldom has to be thought over.
"""

from typing import Final

from federator.protocol.bounded_cache import BoundedCache

FAN_OUT: Final = 8
"""How many names a level is taken to have at least."""

NAMES_MAX: Final = 4_096
"""Names counted at one level; a power of ``FAN_OUT``."""

LEVELS_MAX: Final = 1_024
"""Levels below all first ones that are counted; others are taken to have the least."""

NAMES_IN_ALL_MAX: Final = 65_536

ANSWERS_MAX: Final = 32_768
"""Filters of which is remembered how much they ask for: a hub's many covers ask of the same."""

Level = tuple[str, int]


class FanOuts:
    """How many names each level is taken to have. Never changes."""

    def __init__(self, fan_outs: dict[Level, int]) -> None:
        self.by_level = fan_outs  # where it is not the least
        self.names_of = BoundedCache(self._names_of, answers_max=ANSWERS_MAX)

    def _names_of(self, filter: str) -> int:
        """How many names those are taken to be that ``filter`` has one of each for."""
        levels, names = filter.split("/"), 1
        for depth, level in enumerate(levels):
            if level != "+" and level != "#":
                names *= self.by_level.get(_level_at(levels, depth), FAN_OUT)
        return names


class LevelNames:
    """Counts names by first level and depth. What was seen once stays seen.

    Attributes:
        fan_outs: What follows from them; another object whenever something else does.
    """

    def __init__(self) -> None:
        self.fan_outs = FanOuts({})
        self._seen: dict[Level, set[str]] = {}
        self._count = 0

    def note(self, text: str) -> None:
        """See the names in a filter or a topic."""
        levels = text.split("/")
        for depth, name in enumerate(levels):
            if name not in ("+", "#"):
                self._see(_level_at(levels, depth), name)

    def _see(self, level: Level, name: str) -> None:
        names = self._seen.get(level)
        if names is None:
            if len(self._seen) >= LEVELS_MAX:
                return
            names = self._seen[level] = set()
        full = len(names) >= NAMES_MAX or self._count >= NAMES_IN_ALL_MAX
        if name in names or full:
            return
        names.add(name)
        self._count += 1
        known = self.fan_outs.by_level.get(level, FAN_OUT)
        if len(names) >= FAN_OUT * known:
            self.fan_outs = FanOuts(self.fan_outs.by_level | {level: FAN_OUT * known})


def _level_at(levels: list[str], depth: int) -> Level:
    """Which level one of the ``levels`` of a filter is: all first ones are one."""
    return (levels[0] if depth else "", depth)
