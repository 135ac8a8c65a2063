"""``federator-lab paper codecs-solve``: who of an operator's own tree adds how much repair."""

from pathlib import Path

import click
import numpy as np

from federator.cli.options import PLACE, columns, option
from federator.cli.planning.files import read_bytes
from federator.errors import InstanceError
from lab.frame.printing import tell
from lab.papers.codecs import tree_file
from lab.papers.codecs.plan import added, cost
from lab.papers.codecs.schemes import Scheme, decide

SEED_MAX = 2**31 - 1


@click.command(name="codecs-solve")
@click.argument("tree", type=PLACE)
@option("--scheme", type=click.Choice([s.value for s in Scheme]), default=Scheme.EXACT.value)
@option("--seed", type=click.IntRange(0, SEED_MAX), default=0, help="Of schemes that draw.")
@click.option("--json", "as_json", is_flag=True, help="Everything as one JSON object.")
def command(tree: Path, scheme: str, seed: int, as_json: bool) -> None:
    """Say which brokers of TREE (JSON) add how many repair packets to a message of 16."""
    try:
        named = tree_file.decode(read_bytes(tree))
    except InstanceError as error:
        raise InstanceError(f"{tree}: {error}") from None
    problem = named.problem
    plan = decide(Scheme(scheme), problem, np.random.default_rng(seed))
    paid = cost(problem, plan)
    adds = added(problem, plan).tolist()
    nodes = [
        {
            "name": name,
            "lost": int(problem.lost[at]),
            "codec": bool(plan.codec[at]),
            "adds": adds[at],
            "sends": int(plan.total[at]),
        }
        for at, name in enumerate(named.names)
    ]
    rows = [("broker", "link may lose", "codec", "adds", "repair packets on each link below")]
    for node in nodes:
        codec = "yes" if node["codec"] else "no"
        rows.append((node["name"], node["lost"], codec, node["adds"], node["sends"]))
    record = {"scheme": scheme, "charge": problem.charge, "cost": paid, "nodes": nodes}
    lines = [*columns(rows), f"cost {paid:g} ({problem.charge.value}, {scheme})"]
    tell(lines, record, as_json=as_json)
