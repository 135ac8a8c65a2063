"""How long an agent's event loop works without looking up, in processor time.

A thread of the agent lets the loop run a callback, again and again, and reads the processor clock
of the loop's thread on both ends: what the loop worked meanwhile is (the rest of) one turn. Time
in which it was not running, on a busy machine, does not count. Both event loops are watched alike.

Of a turn in which Python's collector looked at all that the agent keeps, it is told how long.

A test starts its agents ``watched``, and asks for ``longest_turn`` when its attack is over.
"""

import functools
import gc
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import NamedTuple

FOLDER = "FEDERATOR_TURNS"
"""Environment variable: the folder to which agents that are started now write their turns."""

TOLD_MS = 15
"""Shorter turns are not told."""

OLDEST = 2
"""The generation whose collection looks at everything."""

GAP_S = 0.002
FRAMES_MAX = 8


class Turn(NamedTuple):
    """One long turn: when it ended (monotonic), how long it was, where it was half-way."""

    at_s: float
    ms: float
    where: str


def watch(new_event_loop):
    """``new_event_loop``, but its loops are watched where the environment says so."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        return new_event_loop

    @functools.wraps(new_event_loop)
    def watched():
        loop = new_event_loop()
        path = Path(folder) / str(os.getpid())
        threading.Thread(target=_tell, args=(loop, path), daemon=True).start()
        return loop

    return watched


def _tell(loop, path):
    thread = threading.main_thread().ident
    clock = time.pthread_getcpuclockid(thread)
    looked_up = threading.Event()
    took_s = collecting_s = collected_s = 0.0

    def look_up():
        nonlocal took_s
        took_s = time.clock_gettime(clock) - began_s
        looked_up.set()

    def on_collection(phase, info):
        nonlocal collecting_s, collected_s
        if info["generation"] == OLDEST:
            now_s = time.clock_gettime(clock)
            if phase == "start":
                collecting_s = now_s
            else:
                collected_s += now_s - collecting_s

    gc.callbacks.append(on_collection)

    with path.open("a", encoding="utf-8", buffering=1) as file:
        while not loop.is_closed():
            looked_up.clear()
            where = ""
            collected_s = 0.0
            began_s = time.clock_gettime(clock)
            try:
                loop.call_soon_threadsafe(look_up)
            except RuntimeError:
                return  # it was closed
            while not looked_up.wait(GAP_S) and not loop.is_closed():
                if not where and time.clock_gettime(clock) - began_s > TOLD_MS / 1_000:
                    where = _place(sys._current_frames()[thread])
            if collected_s:
                where += f" (collector: {collected_s * 1_000:.0f} ms)"
            if took_s * 1_000 >= TOLD_MS:
                file.write(f"{time.monotonic():f} {took_s * 1_000:f} {where}\n")
            time.sleep(GAP_S)


def _place(frame):
    stack = traceback.extract_stack(frame)[-FRAMES_MAX:]
    return " > ".join(f"{Path(f.filename).stem}.{f.name}:{f.lineno}" for f in stack)


def turns_in(path, *, since_s=0.0):
    """The long turns told in ``path`` that ended after ``since_s``."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        at_s, ms, where = line.split(" ", 2)
        found.append(Turn(float(at_s), float(ms), where))
    return [turn for turn in found if turn.at_s >= since_s]


def longest_turn(folder, *agents, since_s=0.0):
    """The longest one of ``agents``, or of all that told theirs; of no length where none did."""
    folder = Path(folder)
    paths = [folder / str(agent.pid) for agent in agents] or list(folder.iterdir())
    told = [turn for path in paths for turn in turns_in(path, since_s=since_s)]
    return max(told, key=lambda turn: turn.ms, default=Turn(since_s, 0.0, ""))
