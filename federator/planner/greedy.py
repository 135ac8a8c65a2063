"""What a user would write first: each topic in turn takes the shortest paths that have room.

Proves nothing; the baseline that better methods are measured against.
"""

from federator.planner.instance import Instance
from federator.planner.outcome import Outcome, outcome
from federator.planner.watch import UNWATCHED, Progress, Watch
from federator.planner.workbench import Workbench


def solve(instance: Instance, *, watch: Watch = UNWATCHED) -> Outcome:
    """Route topics in the order of the file."""
    bench = Workbench(instance)
    stopped = "done"
    for topic in range(instance.topics):
        if watch.over():
            stopped = "stopped"
            break
        bench.insert(topic)
        watch.report(Progress(topic / instance.topics, bench.total()))
    return outcome(instance, bench.routing(), method="greedy", stopped=stopped)
