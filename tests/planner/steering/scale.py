"""How long one decision takes, and how much memory: ``python -m tests.planner.steering.scale``.

100 agents, 1,000 heavy flows; every tenth link carries more than it can on the shortest ways, and
the others have room.
"""

import json
import random
import resource
import sys
import time

from msgspec.structs import replace

from federator.planner.flow.watch import Watch
from federator.planner.methods import SOLVERS, Method
from federator.planner.steering.decision import Decider
from federator.planner.steering.export import measured
from federator.planner.steering.network import network_of
from tests.planner.steering.world import World, both


def crowded(agents, flows, seed):
    """A federation of four links each, with links that are too full."""
    rng = random.Random(seed)
    ids = list(range(1, agents + 1))
    links = {(a, b): (rng.randint(1, 5), None) for a, b in zip(ids, [*ids[1:], 1], strict=True)}
    while len(links) < 2 * agents:
        a, b = rng.sample(ids, 2)
        if (b, a) not in links:
            links[a, b] = (rng.randint(1, 5), None)
    wanted = {}
    for number in range(flows):
        origin = rng.choice(ids)
        others = [each for each in ids if each != origin]
        wants = tuple(sorted(rng.sample(others, rng.randint(1, 5))))
        wanted[origin, (f"t/{number}",)] = (wants, 1e5 * rng.paretovariate(2))
    world = World(both(links), wanted)
    carried = dict.fromkeys(world.links, 0.0)
    world.loads = lambda: carried
    network = network_of([world.told(id_) for id_ in ids])
    for (origin, _), (destinations, rate) in wanted.items():
        for link in network.way(origin, destinations):
            carried[network.links[link]] += rate
    ranked = sorted(carried.values())
    full = ranked[len(ranked) * 9 // 10]
    world.links = {
        ends: (cost, max(full, carried[ends] * rng.uniform(0.85, 0.95)))
        for ends, (cost, _) in world.links.items()
    }
    return world


def main(agents=100, flows=1_000, seed=1):
    """Print seconds, memory and what was achieved."""
    world = crowded(agents, flows, seed)
    words = [world.told(id_) for id_ in range(1, agents + 1)]
    decider = Decider()
    for step in range(10):
        now_ms = step * 2_000
        for word in words:
            decider.on_load(replace(word, at_ms=now_ms), now_ms=now_ms)
        began_s, cpu_s = time.monotonic(), time.process_time()
        watch = Watch(seconds=time.monotonic, time_limit_s=8.0, started_s=began_s)
        decision = decider.decide(now_ms=now_ms, watch=watch)
        took_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
        if decision.moves:
            break
    decider.decide(now_ms=now_ms)  # only looks: the moves have to show first
    found = measured(decider.measured(), {})
    bound = SOLVERS[Method.LAGRANGIAN](found.instance, seed=0).lower_bound
    print(  # noqa: T201 - a command
        json.dumps(
            {
                "agents": agents,
                "flows": flows,
                "seconds": round(took_s, 2),
                "cpu_seconds": round(cpu_s, 2),
                "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "links": len(world.links),
                "links_over_95_before": sum(s > 0.95 for s in decision.before.values()),
                "links_over_95_promised": sum(s > 0.951 for s in decision.promised.values()),
                "fullest_before": round(max(decision.before.values()), 2),
                "fullest_promised": round(max(decision.promised.values()), 3),
                "moves": len(decision.moves),
                "gap": round(1 - bound / found.path_cost, 4),
                "why": decision.why[:200],
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
