"""A process that appends for ever and says what was taken; to be killed, or to fill its disk.

Arguments: what to append to, its folder, how many bytes a file may have (0: any number).
"""

import os
import resource
import sys
from pathlib import Path

from federator.runtime.custody.delivery_journal import DeliveryJournal
from federator.runtime.storage.filter_file import OWED, FilterFile
from tests.runtime.custody.custody_world import add, key, open_log


def log(folder):
    one = open_log(folder, bytes_max=1 << 30, segment_bytes=20_000)
    while True:
        add(one, {1}, {1, 2}, body=bytes(150))
        yield one.next_seq - 1


def journal(folder):
    one = DeliveryJournal(folder, bytes_max=20_000)
    number = one.last
    while True:
        if one.is_due:
            one.snapshot(one.positions(None), {}, folded_to=number)
        number = one.append([(1, 1, one.last + 1, key(1)), (2, 1, one.last + 2, key(2))])
        yield number


def owed(folder):
    one = FilterFile(folder, OWED)
    while True:
        last = int(max(one.load(), default="0"))
        assert one.alter({f"{last + 1:09}": 0})
        one.alter({f"{last:09}": None})
        yield last + 1


def main():
    what, folder, bytes_max = sys.argv[1:]
    if int(bytes_max):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(bytes_max), int(bytes_max)))
    try:
        for taken in {"log": log, "journal": journal, "owed": owed}[what](Path(folder)):
            os.write(1, b"%d\n" % taken)
    except OSError as error:
        os.write(1, b"full: %s\n" % os.strerror(error.errno).encode())


if __name__ == "__main__":
    main()
