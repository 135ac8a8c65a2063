"""Counts the names seen at each topic level: the number that a ``+`` there matches.

``site/+/door/set`` and ``site/7/+/set`` have as many levels, but the former asks for every site in
the world and the latter for the few devices of one site. Counting the names seen at each level, in
wanted filters and in received topics, shows the difference: a hundred sites, five devices. Names
are counted separately below each first level, because topic trees differ by that.

Only whole powers of ``FAN_OUT`` count, so decisions based on them seldom need revision.
"""

from typing import Final

from federator.protocol.bounded_cache import BoundedCache

FAN_OUT: Final = 8
"""The least number of names that a level is assumed to have."""

NAMES_MAX: Final = 4_096
"""Names counted at one level; a power of ``FAN_OUT``."""

LEVELS_MAX: Final = 1_024
"""Levels counted, in all; others are assumed to have the least number of names."""

NAMES_IN_ALL_MAX: Final = 65_536

ANSWERS_MAX: Final = 32_768
"""Filters with cached estimates: a hub's many covers ask about the same ones."""

Level = tuple[str, int]


class FanOuts:
    """The assumed number of names at each level. Immutable."""

    def __init__(self, fan_outs: dict[Level, int]) -> None:
        self.by_level = fan_outs  # where it is not the least
        self.names_of = BoundedCache(self._names_of, answers_max=ANSWERS_MAX)

    def _names_of(self, filter: str) -> int:
        """The number of combinations of names of which ``filter`` selects one."""
        levels, names = filter.split("/"), 1
        for depth, level in enumerate(levels):
            if level != "+" and level != "#":
                names *= self.by_level.get(_level_at(levels, depth), FAN_OUT)
        return names


class LevelNames:
    """Counts names by first level and depth. A counted name is never removed.

    Attributes:
        fan_outs: The resulting estimates; replaced by another object when they change.
    """

    def __init__(self) -> None:
        self.fan_outs = FanOuts({})
        self._seen: dict[Level, set[str]] = {}
        self._count = 0

    def note(self, text: str) -> None:
        """Count the names in a filter or a topic."""
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
        assumed = self.fan_outs.by_level.get(level, FAN_OUT)
        if len(names) >= FAN_OUT * assumed:
            self.fan_outs = FanOuts(self.fan_outs.by_level | {level: FAN_OUT * assumed})


def _level_at(levels: list[str], depth: int) -> Level:
    """The counter for the level at ``depth``: all first levels share one."""
    return (levels[0] if depth else "", depth)
