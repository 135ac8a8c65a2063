"""How long an order of cores takes at a hundred agents: ``python -m
tests.planner.steering.scale_cores`` prints it."""

import random
import resource
import sys
import time

from federator.protocol.messages.steering import MESHES_MAX
from tests.planner.steering.test_placing import Meshes

BROKERS, FILTERS, WANTED, PUBLISHED = 100, 400, 80, 40


def world(seed=1):
    """A tree with as many links besides; everybody wants and publishes to filters by chance."""
    rng = random.Random(seed)
    ids = range(1, BROKERS + 1)
    links = {(rng.randint(1, b - 1), b): rng.randint(1, 5) for b in ids[1:]}
    for _ in ids:
        links.setdefault(tuple(sorted(rng.sample(ids, 2))), rng.randint(1, 5))
    filters = [f"f/{number}" for number in range(FILTERS)]
    wanted = {b: set(rng.sample(filters, WANTED)) for b in ids}
    published = {b: {f: rng.uniform(1, 50) for f in rng.sample(filters, PUBLISHED)} for b in ids}
    return Meshes(links=links, wanted=wanted, published=published, followers=set(ids))


def main():
    """Steps until cores moved, and one more."""
    meshes, was = world(), None
    while was is None or not was.changed:
        began = time.monotonic()
        was = meshes.step()
        took_s = time.monotonic() - began
    began = time.monotonic()
    meshes.step()
    idle_s = time.monotonic() - began
    assert was.meshes == MESHES_MAX
    saved = 1 - was.cost_promised / was.cost
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(
        f"{was.meshes} meshes, {BROKERS} brokers: {saved:.0%} saved after {took_s:.1f} s\n"
        f"a step with nothing to find takes {idle_s:.2f} s; {mib:.0f} MiB in all\n"
    )


if __name__ == "__main__":
    main()
