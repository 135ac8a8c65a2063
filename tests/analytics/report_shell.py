"""Runs verbs of federator-analytics one after the other in one process, so that Java starts once.

Reads a JSON list of arguments per line; answers with a line of exit code, stdout and stderr.
"""

import contextlib
import io
import json
import sys

from federator_analytics.cli import main


def run(arguments):
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as stopped:
            code = stopped.code
    return [code, out.getvalue(), err.getvalue()]


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run(json.loads(line))) + "\n")
        sys.stdout.flush()
