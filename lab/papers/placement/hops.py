"""Hops between devices."""

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import shortest_path

from federator.errors import FederatorError

Matrix = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]


class PlacementError(FederatorError):
    """A problem makes no sense, the solver refused it, or it gave no usable answer."""


def hops_of(linked: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Hops between all nodes, inf where no way leads; ``linked`` is symmetric; shapes (D, D)."""
    hops: npt.NDArray[np.float64] = shortest_path(linked, unweighted=True)
    return hops
