"""Networks that exist: SNDlib's and the Topology Zoo's graphs, from the package ``topohub``.

Brokers stand where the network has nodes; a link costs its length in units of ``KM_PER_COST``,
rounded up. Traffic and capacities are drawn as in ``generators``.
"""

import json
import math
import re
from importlib.resources import files
from typing import Any

import numpy as np

from federator.errors import InstanceError
from federator.planner.generators import federation
from federator.planner.instance import Instance

KM_PER_COST = 50.0


def named(name: str, *, topics: int, fan_out: int, seed: int, tightness: float = 0.9) -> Instance:
    """The network ``name``, such as ``sndlib/germany50`` or ``topozoo/Geant2012``.

    Raises:
        InstanceError: When there is none of that name.
    """
    graph = _graph(name)
    number = {node["id"]: i for i, node in enumerate(graph["nodes"])}
    places = [(float(node["pos"][0]), -float(node["pos"][1])) for node in graph["nodes"]]
    costs: dict[tuple[int, int], float] = {}
    for edge in graph["edges"]:
        a, b = sorted((number[edge["source"]], number[edge["target"]]))
        if a != b:
            costs[a, b] = float(max(1, math.ceil(float(edge["dist"]) / KM_PER_COST)))
    return federation(
        f"{name}-{seed}",
        places,
        sorted(costs),
        topics=topics,
        fan_out=fan_out,
        rng=np.random.default_rng(seed),
        tightness=tightness,
        costs=[costs[edge] for edge in sorted(costs)],
    )


def _graph(name: str) -> dict[str, Any]:
    """Read from the package's data: its own ``get`` leaves the file open."""
    wanted = "one of topohub's, such as sndlib/germany50, wanted"
    if not re.fullmatch(r"[a-z]+/[A-Za-z0-9_-]+", name):
        raise InstanceError(f"topology: {name!r}: {wanted}")
    try:
        text = files("topohub").joinpath("data", f"{name}.json").read_text(encoding="utf-8")
    except OSError:
        raise InstanceError(f"topology: {name!r}: {wanted}") from None
    graph: dict[str, Any] = json.loads(text)
    return graph
