"""Shortest paths for many topics at once, each with arc lengths of its own.

One row of lengths is one layer: a copy of the graph. Layers form one block-diagonal graph, so that
a single call of scipy's Dijkstra, started at every layer's source, solves all of them; layers are
taken in chunks that fit into the processor's cache. Paths are then walked back from all targets in
step.

An arc of infinite length does not exist.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

from federator.planner.flow.instance import FloatArray, Instance, IntArray

Index32Array = npt.NDArray[np.int32]
"""The index type of scipy's graphs."""

CHUNK_NODES = 20_000
"""Nodes in one call of Dijkstra."""


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """A shortest path tree per layer, L layers."""

    distance: FloatArray  # from the layer's source, shape (L, N); infinite if unreachable
    # The previous node on the path to each node, shape (L, N); negative at sources and if
    # unreachable.
    before: IntArray


class ShortestPaths:
    """The graph of an instance, prepared for repeated queries."""

    def __init__(self, instance: Instance) -> None:
        self.nodes = instance.nodes
        self.arcs = instance.arcs
        self._order = np.lexsort((instance.head, instance.tail))
        self._head = instance.head[self._order]
        counts = np.bincount(instance.tail, minlength=self.nodes)
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        self._keys = (instance.tail[self._order] * self.nodes + self._head).astype(np.int64)
        self._layouts: dict[int, tuple[Index32Array, Index32Array]] = {}

    def trees(self, lengths: FloatArray, sources: IntArray) -> Trees:
        """Shortest path trees, layer by layer, from ``sources``, shape (L,).

        ``lengths``, shape (L, A), are not negative, and infinite for arcs that may not be used.
        """
        chunk = max(1, CHUNK_NODES // self.nodes)
        parts = [
            self._chunk(lengths[first : first + chunk], sources[first : first + chunk])
            for first in range(0, len(sources), chunk)
        ]
        if len(parts) == 1:
            return parts[0]
        return Trees(
            np.concatenate([part.distance for part in parts]),
            np.concatenate([part.before for part in parts]),
        )

    def _chunk(self, lengths: FloatArray, sources: IntArray) -> Trees:
        layers = len(sources)
        indices, starts = self._layout(layers)
        graph = csr_matrix(
            (lengths[:, self._order].ravel(), indices, starts),
            shape=(layers * self.nodes, layers * self.nodes),
            copy=False,
        )
        offset = np.arange(layers) * self.nodes
        distance, before, _ = dijkstra(
            graph, indices=offset + sources, min_only=True, return_predecessors=True
        )
        shape = (layers, self.nodes)
        return Trees(distance.reshape(shape), before.reshape(shape) - offset[:, None])

    def _layout(self, layers: int) -> tuple[Index32Array, Index32Array]:
        """Row starts and columns of a graph of ``layers`` copies."""
        if layers not in self._layouts:
            offset = np.arange(layers, dtype=np.int32)[:, None]
            indices = (self._head[None, :] + offset * self.nodes).astype(np.int32)
            starts = self._starts[None, :-1] + offset * np.int32(self.arcs)
            ends = np.append(starts.ravel(), np.int32(layers * self.arcs)).astype(np.int32)
            self._layouts[layers] = (indices.ravel(), ends)
        return self._layouts[layers]

    def walk(self, trees: Trees, layer: IntArray, target: IntArray) -> tuple[IntArray, IntArray]:
        """The arcs from the sources to ``target[i]`` in tree ``layer[i]``, for all i at once.

        Pairs ``(i, arc)`` as two arrays, unordered. Unreachable targets have no arcs. All walks go
        back in step, from their target to the previous node.
        """
        walker, here = np.arange(len(target), dtype=np.intp), target
        walkers: list[IntArray] = []
        keys: list[IntArray] = []
        while len(walker):
            tail = trees.before[layer[walker], here]
            going = tail >= 0
            walker, here, tail = walker[going], here[going], tail[going]
            walkers.append(walker)
            keys.append(tail * np.int64(self.nodes) + here)
            here = tail
        if not keys:
            return walker, walker
        return np.concatenate(walkers), self._order[
            np.searchsorted(self._keys, np.concatenate(keys))
        ]
