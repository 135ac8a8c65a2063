"""The real program, run to its end in a process of its own."""

import os
import subprocess
import sys


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "federator_analytics", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | environment,
    )
