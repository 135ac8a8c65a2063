"""The paper's centralised planner: a genetic algorithm over counts and orders.

A chromosome has two parts: bits that say **how many** codecs, and a permutation of all places of
which that many first ones become codecs. Mating swaps the bits beyond one point and crosses the
permutations in order (OX); mutation flips a bit and reverses a stretch. The best half lives on. It
ends when nothing better came for a while.

Source: Esposito 2018, 3.1, Figure 1.
"""

import numpy as np

from lab.papers.codecs.plan import Plan, Problem, checked, costs, totals, with_codecs
from lab.papers.codecs.tree import BoolArray, FloatArray, IntArray

POPULATION = 40  # chromosomes alive
PATIENCE = 15  # generations without a better one before it ends
GENERATIONS_MAX = 300  # when it ends anyhow
FLIP = 0.3  # chance that one bit of a child flips
REVERSE = 0.3  # chance that a stretch of its permutation is reversed


def evolve(problem: Problem, rng: np.random.Generator) -> Plan:
    places = np.flatnonzero(problem.tree.children[problem.tree.roots :]) + problem.tree.roots
    if not len(places):
        return with_codecs(problem, np.zeros(len(problem.tree), dtype=bool))
    width = len(places).bit_length()
    bits = rng.random((POPULATION, width)) < 0.5
    orders = np.array([rng.permutation(len(places)) for _ in range(POPULATION)])
    fitness = _costs(problem, places, bits, orders)
    best, waited = np.inf, 0
    for _ in range(GENERATIONS_MAX):
        ranked = np.argsort(fitness, kind="stable")[:POPULATION]
        bits, orders, fitness = bits[ranked], orders[ranked], fitness[ranked]
        waited = 0 if fitness[0] < best else waited + 1
        best = min(best, float(fitness[0]))
        if waited >= PATIENCE:
            break
        young_bits, young_orders = _children(bits, orders, rng)
        young = _costs(problem, places, young_bits, young_orders)
        bits = np.concatenate((bits, young_bits))
        orders = np.concatenate((orders, young_orders))
        fitness = np.concatenate((fitness, young))
    return checked(problem, with_codecs(problem, _codecs(problem, places, bits[:1], orders[:1])[0]))


def _codecs(problem: Problem, places: IntArray, bits: BoolArray, orders: IntArray) -> BoolArray:
    weights = 1 << np.arange(bits.shape[1])
    counts = np.minimum(bits @ weights, len(places))
    chosen = np.zeros((len(bits), len(places)), dtype=bool)
    ranks = np.broadcast_to(np.arange(len(places)), orders.shape)
    np.put_along_axis(chosen, orders, ranks < counts[:, None], axis=1)
    found = np.zeros((len(bits), len(problem.tree)), dtype=bool)
    found[:, places] = chosen
    return found


def _costs(problem: Problem, places: IntArray, bits: BoolArray, orders: IntArray) -> FloatArray:
    codec = _codecs(problem, places, bits, orders)
    codec[:, : problem.tree.roots] = True
    return costs(problem, codec, totals(problem, codec))


def _children(
    bits: BoolArray, orders: IntArray, rng: np.random.Generator
) -> tuple[BoolArray, IntArray]:
    pairs = rng.permutation(len(bits))
    other_bits, other_orders = bits[pairs], orders[pairs]
    cut = rng.integers(1, bits.shape[1] + 1, len(bits))
    young = np.where(np.arange(bits.shape[1]) < cut[:, None], bits, other_bits)
    flips = rng.random(len(bits)) < FLIP
    young[flips, rng.integers(bits.shape[1], size=len(bits))[flips]] ^= True
    born = orders.copy()
    size = orders.shape[1]
    ends = np.sort(rng.integers(0, size + 1, (len(bits), 4)).reshape(-1, 2, 2), axis=2)
    for child, (mating, mutation) in enumerate(ends):
        born[child] = order_crossed(orders[child], other_orders[child], *mating)
        if rng.random() < REVERSE:
            born[child, slice(*mutation)] = born[child, slice(*mutation)][::-1].copy()
    return young, born


def order_crossed(one: IntArray, other: IntArray, start: int, stop: int) -> IntArray:
    """OX: a stretch of ``one`` in its place, the rest in the order of ``other``."""
    kept = np.zeros(len(one), dtype=bool)
    kept[one[start:stop]] = True
    rest = other[~kept[other]]
    return np.concatenate((rest[:start], one[start:stop], rest[start:]))
