"""The files of a state folder and their sizes, so that a missing file is noticed.

A file that is gone, or that ends where a record ended, looks as if there had never been more. So a
process writes down all files when it leaves and, while it runs, the names of the permanent ones.
The next process reports missing or shorter files as damage.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from federator.runtime.process.clocks import beat
from federator.runtime.storage import damage

FILE_NAME: Final = "files"
NOTED_EVERY_S: Final = 60.0
_NOT_OURS: Final = frozenset({FILE_NAME, "lock", "http.port", "core_priority.json"})
_AT_TIMES: Final = frozenset({"draining", "former-session", "home-assistant.json"})
_ASIDE: Final = (".new", ".outdated", damage.ASIDE)

_Sizes = dict[str, int]
"""The least bytes by the name in the state folder."""


class Inventory:
    """The files of one state folder, for one process at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / FILE_NAME
        self._noted: _Sizes | None = None

    def compare(self) -> None:
        """Report files missing, or shorter than when the last process left; call it first."""
        try:
            noted = msgspec.json.decode(
                damage.unsealed(self._path.read_bytes()) or b"", type=_Sizes
            )
        except FileNotFoundError:
            if damage.is_sealed(self._folder / "epoch"):  # which is written after this one
                damage.tell(self._path, "it is missing, so nobody knows what else is")
            return
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            damage.tell(self._path, "it cannot be read, so nobody knows what else is missing")
            return
        sizes = dict(self._sizes())
        for name, size in noted.items():
            path = self._folder / name
            if name not in sizes:
                damage.tell_gone(path, "it is missing")
            elif sizes[name] < size:
                reason = f"{sizes[name]} bytes are left of {size}"
                damage.tell_gone(path, reason, lost_bytes=size - sizes[name])

    def note_names(self) -> None:
        """Write down the permanent files if they changed; a full disk costs no more."""
        names = {
            name: min(1, size)
            for name, size in self._sizes()
            for base in [Path(name).name]
            if not base.lstrip(".")[:1].isdigit() and base not in _AT_TIMES
        }
        self._note(names)

    async def follow(self) -> None:
        """Note the names of new files, until cancelled."""
        while True:
            await beat(NOTED_EVERY_S)
            self.note_names()

    def note_all(self) -> None:
        """Write down all files and their sizes; the process leaves."""
        self._note(dict(self._sizes()))

    def _note(self, sizes: _Sizes) -> None:
        if sizes != self._noted:
            with contextlib.suppress(OSError):
                damage.write(self._path, msgspec.json.encode(sizes))
                self._noted = sizes

    def _sizes(self) -> Iterator[tuple[str, int]]:
        for at, _, names in os.walk(self._folder):
            for name in sorted(names):
                path = Path(at, name)
                if name not in _NOT_OURS and not name.endswith(_ASIDE):
                    with contextlib.suppress(OSError):
                        yield str(path.relative_to(self._folder)), path.stat().st_size
