"""What agents and gateways of tests are forked from: their event loops can be watched."""

import uvloop

from lab.grid.processes import warm
from tests.real import turns

if __name__ == "__main__":
    uvloop.new_event_loop = turns.watch(uvloop.new_event_loop)
    warm.main()
