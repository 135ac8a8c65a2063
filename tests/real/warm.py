"""What agents and gateways of tests are forked from: their event loops can be watched."""

import uvloop

from lab.grid.processes import warm
from tests.real import turns


def watch_turns():
    uvloop.new_event_loop = turns.watch(uvloop.new_event_loop)


if __name__ == "__main__":
    warm.main(watch_turns)
