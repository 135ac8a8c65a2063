"""What stands in spools and in landing folders."""

import contextlib
import json
import re

CHECKSUM = re.compile(rb',"crc":"[0-9a-f]{8}"}$')
"""What a line on an agent's disk has beside what is told."""


def place(text):
    """Of a record."""
    record = json.loads(text)
    return record["broker"], record["spool"], record["batch"], record["row"]


def lines_of(paths):
    """Lines by their place; each place once."""
    found = {}
    for path in paths:
        for text in path.read_bytes().split(b"\n")[:-1]:  # a file that grows may have a torn end
            at = place(text)
            assert at not in found, (at, path)
            found[at] = CHECKSUM.sub(b"}", text)
    return found


def landed_lines(landing):
    """What stands in a landing folder; each record once, in a file that names its batch."""
    paths = sorted(landing.rglob("*.jsonl"))
    for path in paths:
        broker, spool, first, last = path.stem.split("-")
        assert path.read_bytes().endswith(b"\n")
        for text in path.read_bytes().splitlines():
            at = place(text)
            assert at[:2] == (int(broker), spool)
            assert int(first) <= at[2] <= int(last), (path, at)
    return lines_of(paths)


def gaps(lines):
    """The records of gaps and skips among ``lines``."""
    return [text for text in lines.values() if b'"kind":"collector_' in text]


def spooled_lines(state_dir):
    """What stands in the spool of an agent, in whole files and in the one that grows."""
    while True:
        # In this order: one that gets its name in between is missed, not overlooked.
        paths = [*state_dir.glob("metrics/.*.open"), *state_dir.glob("metrics/*.jsonl")]
        with contextlib.suppress(FileNotFoundError):
            return lines_of(paths)
