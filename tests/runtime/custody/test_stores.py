"""Custody's files as the core sees them: what is owed, and a disk that takes no more."""

import subprocess
import sys
from pathlib import Path

from federator.config.sections import CustodySettings
from federator.runtime.custody.stores import CustodyStores


def test_what_a_turn_alters_of_what_is_owed_is_one_write_and_there_for_the_next_process(tmp_path):
    stores = CustodyStores(tmp_path, CustodySettings())
    stores.write_owed("a", 0)
    stores.write_owed("b", 7)
    stores.write_owed("a", None)
    assert stores.load_owed() == {}

    stores.flush_owed()

    assert stores.load_owed() == {"b": 7}
    stores.write_owed("c", 9)
    stores.close()
    again = CustodyStores(tmp_path, CustodySettings())
    assert again.load_owed() == {"b": 7, "c": 9}
    again.close()


SCRIPT = """
import resource, sys
from pathlib import Path
from federator.config.sections import CustodySettings
from federator.protocol.custody.ports import Record
from federator.runtime.custody.stores import CustodyStores
stores = CustodyStores(Path(sys.argv[1]), CustodySettings())
keys = bytes(8)
def write(seq):
    took = stores.write_log([Record(seq, 1, 1, keys, (seq - 1,), bytes(3000))])
    print(took, stores.block())
write(1)
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 16000))
write(2)
resource.setrlimit(resource.RLIMIT_FSIZE, (16000, 16000))
write(2)
"""


def test_a_log_that_cannot_be_written_is_said_until_it_can(tmp_path):
    run = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    told = subprocess.run(
        run, cwd=Path(__file__).parents[3], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    before, full, after = [line for line in told.splitlines() if line.startswith(("True", "Fal"))]

    assert (before, after) == ("True ", "True ")
    assert full == "False the custody log cannot be written: File too large: QoS 1 and 2 wait"
