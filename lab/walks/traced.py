"""A process of the product's that notes the files of which a step of a walk calls something.

``python -m lab.walks.traced FOLDER MODULE ARGUMENT...`` is ``python -m MODULE ARGUMENT...``. At
SIGUSR1 it writes the files since the last one, as ``FOLDER/<process id>-<number>.json``.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from runpy import run_module
from types import CodeType, FrameType
from typing import Any, Final

STEPS: Final = "steps.json"
"""In the folder: files and names of the steps of one walk."""

OURS: Final = ("/federator/", "/federator_analytics/")
AGENT: Final = "federator.runtime.agent.process"
"""What ``federator run`` becomes: another interpreter, which would not be traced."""

TOGETHER: Final = "together"
Noted = dict[str, set[str]]
"""Files by the step that led to no other one, or ``TOGETHER`` where one led to another."""


class Trace:
    """Notes files while a step is being called; ``sys.setprofile`` takes ``note``."""

    def __init__(self, steps: list[tuple[str, str]]) -> None:
        self._step_of = {tuple(step): f"{step[0]}:{step[1]}" for step in steps}
        self._known: dict[CodeType, tuple[str | None, str | None]] = {}
        self._called: list[str] = []  # steps that have not returned, the outermost first
        self._inner: set[str] = set()  # steps that the outermost one led to, and itself
        self._passed: set[str] = set()
        self._noted: Noted = {}

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        known = self._known.get(code)
        if known is None:
            name = code.co_filename
            ours = name if any(house in name for house in OURS) else None
            known = self._known[code] = self._step_of.get((name, code.co_qualname)), ours
        step, ours = known
        if event == "call":
            if step:
                self._called.append(step)
                self._inner.add(step)
            if self._called and ours:
                self._passed.add(ours)
        elif event == "return" and step and self._called:
            self._called.pop()
            if not self._called:
                key = TOGETHER if len(self._inner) > 1 else step
                self._noted.setdefault(key, set()).update(self._passed)
                self._inner, self._passed = set(), set()

    def take(self) -> Noted:
        taken, self._noted = self._noted, {}
        return taken


def traced(steps: list[tuple[str, str]], work: Callable[[], object]) -> Noted:
    """What ``work`` passes, done in this thread."""
    trace = Trace(steps)
    sys.setprofile(trace.note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return trace.take()


def main() -> None:
    folder, module, *arguments = sys.argv[1:]
    trace = Trace([tuple(step) for step in json.loads((Path(folder) / STEPS).read_text())])
    number = 0

    def write(*_signal: Any) -> None:  # noqa: ANN401  # number and frame
        nonlocal number
        file = Path(folder) / f"{os.getpid()}-{number}.json"
        part = file.with_suffix(".part")
        part.write_text(json.dumps(trace.take(), default=sorted), encoding="utf-8")
        part.replace(file)
        number += 1

    signal.signal(signal.SIGUSR1, write)
    if (module, arguments[:1]) == ("federator", ["run"]):
        module, arguments = AGENT, [arguments[-1]]
    sys.argv = [module, *arguments]
    sys.setprofile(trace.note)
    try:
        run_module(module, run_name="__main__", alter_sys=True)
    finally:
        sys.setprofile(None)
        write()


if __name__ == "__main__":
    main()
