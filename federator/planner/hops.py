"""Hop counts of any graph, by breadth-first search from all nodes at once."""

import numpy as np
import numpy.typing as npt


def hops_of(linked: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Hops between all nodes, shape (D, D); inf where no way leads.

    Args:
        linked: Shape (D, D), symmetric.
    """
    nodes = len(linked)
    reached = np.eye(nodes, dtype=bool)
    hops = np.where(reached, 0.0, np.inf)
    for distance in range(1, nodes):
        further = (reached @ linked) & ~reached
        if not further.any():
            break
        hops[further] = distance
        reached |= further
    return hops
