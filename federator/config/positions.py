"""Where a key stands in a TOML text.

``tomllib`` forgets line numbers, and an operator needs them. This walks lines, not values: it knows
table headers, keys, and when a string or a bracket is still open. A key inside an inline table is
reported at the line of the key that holds it.
"""

import re
from collections.abc import Iterator

Location = tuple[str | int, ...]

_HEADER = re.compile(r"^\s*(\[\[|\[)\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"""^\s*((?:[A-Za-z0-9_\-.]+|"[^"\n]*"|'[^'\n]*'|\s*\.\s*)+?)\s*=""")
_KEY_PART = re.compile(r"""[A-Za-z0-9_\-]+|"[^"\n]*"|'[^'\n]*'""")
_TOKEN = re.compile(r'"""|\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}]', re.DOTALL)


def _parts(dotted: str) -> Location:
    return tuple(part.strip("\"'") for part in _KEY_PART.findall(dotted))


class _Openness:
    """Whether a line ends inside a multi-line string or an open bracket."""

    def __init__(self) -> None:
        self.delimiter = ""
        self.depth = 0

    def feed(self, line: str) -> None:
        at = 0
        while at < len(line):
            if self.delimiter:
                end = line.find(self.delimiter, at)
                if end < 0:
                    return
                at, self.delimiter = end + 3, ""
                continue
            token = _TOKEN.search(line, at)
            if token is None:
                return
            at, text = token.end(), token.group()
            if text in ('"""', "'''"):
                self.delimiter = text
            elif text in "[{":
                self.depth += 1
            elif text in "]}":
                self.depth = max(0, self.depth - 1)


def _keys(text: str) -> Iterator[tuple[Location, int]]:
    table: Location = ()
    sizes: dict[Location, int] = {}
    openness = _Openness()
    for number, line in enumerate(text.splitlines(), start=1):
        if openness.delimiter or openness.depth:
            openness.feed(line)
            continue
        if header := _HEADER.match(line):
            table = _parts(header.group(2))
            if header.group(1) == "[[":
                sizes[table] = sizes.get(table, -1) + 1
                table = (*table, sizes[table])
            yield table, number
            continue
        if key := _KEY.match(line):
            yield (*table, *_parts(key.group(1))), number
            openness.feed(line[key.end() :])


def line_of(text: str, location: Location) -> int | None:
    """The line of ``location``, or of the nearest key that holds it; ``None`` when it has none."""
    lines: dict[Location, int] = {}
    for place, number in _keys(text):
        lines.setdefault(place, number)
    for length in range(len(location), 0, -1):
        if (number_found := lines.get(location[:length])) is not None:
            return number_found
    return None
