"""Tables that others replace, read again when they changed.

Whoever writes the tables may do so at any moment, so what is found half written is not an error:
the picture of a moment ago stays, with a word of what is wrong, and the next look may find it
whole.
"""

from dataclasses import dataclass
from pathlib import Path

from analytics.digest.tables import NAMES, Tables, part_files, read_tables, version_of
from analytics.errors import InputError

Fingerprint = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """The tables as last read whole.

    ``version`` counts changes. ``written_ns`` is when the newest file was written, 0 when there is
    none. ``trouble`` says why these are not what is on disk now; empty when they are.
    """

    tables: Tables
    version: int
    written_ns: int
    trouble: str


class Watcher:
    """Looks at one folder of report tables. Not for use from several threads at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: Fingerprint | None = None
        self._seen = Seen(Tables({}), 0, 0, "")

    def look(self) -> Seen:
        """What is there now, or what was there last with ``trouble``. Blocks while it reads."""
        try:
            before = _fingerprint(self._folder)
            if before == self._known and not self._seen.trouble:
                return self._seen
            tables = read_tables(self._folder)
            if before != _fingerprint(self._folder):
                raise InputError("the tables are being replaced")
            if self._known and not before:
                raise InputError("the tables are gone")
        except (InputError, OSError) as error:
            seen = self._seen
            self._seen = Seen(seen.tables, seen.version, seen.written_ns, str(error)[:300])
            return self._seen
        self._known = before
        newest_ns = max((written_ns for _, written_ns, _ in before), default=0)
        self._seen = Seen(tables, self._seen.version + 1, newest_ns, "")
        return self._seen


def _fingerprint(folder: Path) -> Fingerprint:
    """Name, time and size of every file of the tables."""
    home = version_of(folder)
    found = []
    for name in NAMES:
        for path in part_files(home / name):
            stat = path.stat()
            found.append((str(path), stat.st_mtime_ns, stat.st_size))
    return tuple(found)
