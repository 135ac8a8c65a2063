"""The process of a traced agent: accounts for its memory, and writes the account when told to.

An allocation counts for the module whose import made it, those of modules that it imports
excluded. Once all is imported, it counts for the file and the line that made it. What it finds goes
into ``FILE`` beside the configuration at SIGUSR1.

Nothing is imported at the top that need not be: what is there before the tracing starts is not
accounted for.
"""

import sys
import tracemalloc
from typing import Any, Final, cast

FILE: Final = "memory.json"
LINES_KEPT: Final = 20
OURS: Final = "federator"


class _Imports:
    """Bytes by module, from now on."""

    def __init__(self) -> None:
        self.bytes_by_module: dict[str, int] = {}
        self._inner: list[int] = []
        self._system = cast(Any, sys.modules["importlib._bootstrap"])
        self._load = self._system._load_unlocked
        self._system._load_unlocked = self._loaded

    def _loaded(self, spec: Any) -> Any:  # noqa: ANN401 - the import system's own
        before = tracemalloc.get_traced_memory()[0]
        self._inner.append(0)
        try:
            return self._load(spec)
        finally:
            taken = tracemalloc.get_traced_memory()[0] - before
            own = taken - self._inner.pop()
            self.bytes_by_module[spec.name] = self.bytes_by_module.get(spec.name, 0) + own
            if self._inner:
                self._inner[-1] += taken

    def by_package(self) -> dict[str, tuple[int, int]]:
        """Modules and bytes of each package; of ours by room."""
        found: dict[str, tuple[int, int]] = {}
        for module, size in self.bytes_by_module.items():
            parts = module.split(".")
            name = ".".join(parts[:2]) if parts[0] == OURS else parts[0]
            modules, so_far = found.get(name, (0, 0))
            found[name] = modules + 1, so_far + size
        return found


def _account(imports: _Imports) -> dict[str, Any]:
    taken = [
        (f"{each.traceback[0].filename}:{each.traceback[0].lineno}", each.count, each.size)
        for each in tracemalloc.take_snapshot().statistics("lineno")
        if "importlib" not in each.traceback[0].filename
    ]
    return {
        "imported": imports.by_package(),
        "lines": taken[:LINES_KEPT],
        "traced_bytes": tracemalloc.get_traced_memory()[0],
    }


def main() -> None:
    tracemalloc.start()
    imports = _Imports()
    import json  # noqa: PLC0415 - these are accounted for
    import signal  # noqa: PLC0415
    import threading  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    from federator.runtime.agent import process  # noqa: PLC0415

    file = Path(sys.argv[1]).parent / FILE
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])  # in every thread from here on

    def wait() -> None:
        signal.sigwait([signal.SIGUSR1])
        part = file.with_suffix(".part")
        part.write_text(json.dumps(_account(imports)), encoding="utf-8")
        part.replace(file)

    threading.Thread(target=wait, name="memory", daemon=True).start()
    process.main()


if __name__ == "__main__":
    main()
