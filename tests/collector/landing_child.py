"""Lands pieces of one spool in processes that are killed after a given step, and tells what stands.

Run as ``python landing_child.py FOLDER``. A step is what opens, makes, renames, removes or
synchronises a file or folder. For each step there is a process that ends right before it, as a kill
would end it, in a folder of its own, and then one that is let go on. One line of JSON per step:
what stood after the kill, and what stood in the end.
"""

import json
import os
import sys
from pathlib import Path

from federator.collector import landing as module
from federator.collector.landing import Landing
from federator.collector.position import Piece

SPOOL = "00000000000000aa"
PIECES = 3
KILLED = 9
TOUCHING = {"open", "os.mkdir", "os.rename", "os.remove"}


def land(folder, fatal):
    steps = 0

    def step():
        nonlocal steps
        steps += 1
        if steps == fatal:
            os._exit(KILLED)

    def hook(event, arguments):
        if event in TOUCHING and str(folder) in str(arguments):
            step()

    def sync_folder(path):
        step()
        plain(path)

    plain, module.sync_folder = module.sync_folder, sync_folder
    with Landing(folder) as landing:
        sys.addaudithook(hook)
        following = landing.scan().get((5, SPOOL), 0) + 1
        for number in range(following, PIECES + 1):
            at_us = 1_700_000_000_000_000 + number // 3 * 3_600_000_000
            landing.write(Piece((5, SPOOL), number, number, at_us, (b"line %d\n" % number,)))
    os._exit(0)


def forked(folder, fatal):
    child = os.fork()
    if child == 0:
        land(folder, fatal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def standing(folder):
    return {
        p.name: p.read_text() for p in sorted(folder.rglob("*")) if p.suffix in {".jsonl", ".part"}
    }


def main(root):
    fatal, code = 0, KILLED
    while code == KILLED:
        fatal += 1
        folder = root / str(fatal)
        code = forked(folder, fatal)
        killed = standing(folder)
        assert forked(folder, 0) == 0
        sys.stdout.write(json.dumps([code, killed, standing(folder)]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
