"""The exact formulations F1 and F2, corrected, for HiGHS.

For topic k with rate a, publisher s and subscribers T, on the arcs that may carry it, with

    zeta[arc] = 1 when the arc carries the topic, x[arc] = requests served through it,
    u[request] = 1 when the request stays unmet (the paper's dummy arc):

    F1  minimise   sum cost * x    + penalty * sum u        an arc is paid once per request (1)
    F2  minimise   sum cost * zeta + penalty * sum u        an arc is paid once per topic  (22)

    sum in x - sum out x = 1 - u at a subscriber, 0 elsewhere but at s      (2) (3) / (26) (27)
    zeta <= x <= abs(T) zeta                                                (4) / (28)
    sum in zeta <= 1 at every node                                          one feed
    sum over topics and arcs of a channel of rate * zeta <= capacity        (5) / (29)
    F2 only: a publisher (no broker) sends on one arc at most               (23)
    F2 only: a broker sends on duplications_max arcs at most, if fed        (25)

``x`` need not be declared whole: the arcs with zeta = 1 form a tree, in which flow has only one
way. ``zeta <= x`` is kept in F2 alone, as printed: in F1 an unused arc costs nothing.

Source: Manzoni 2022, (1)-(7), (22)-(31); docs/planner.md 3.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from federator.planner.flow import routing as routings
from federator.planner.flow.highs import Model, minimise
from federator.planner.flow.instance import FloatArray, Instance, Role
from federator.planner.flow.outcome import Outcome, outcome
from federator.planner.flow.watch import UNWATCHED, Progress, Watch

CHOSEN = 0.5
"""A binary above this is one."""


@dataclass(slots=True)
class _Columns:
    """The column of each variable: ``zeta`` and ``x`` by (topic, arc), ``unmet`` by request."""

    zeta: dict[tuple[int, int], int] = field(default_factory=dict)
    x: dict[tuple[int, int], int] = field(default_factory=dict)
    unmet: dict[int, int] = field(default_factory=dict)


def solve_f1(
    instance: Instance,
    *,
    start: routings.Routing | None = None,
    seed: int = 0,
    watch: Watch = UNWATCHED,
) -> Outcome:
    """Least cost of paths and penalties. The answer costs no more than ``start``, if given.

    Without one, HiGHS under a time limit leaves more unmet than a heuristic does in a second.
    """
    return _solve(instance, by_arcs=False, start=start, seed=seed, watch=watch)


def solve_f2(
    instance: Instance,
    *,
    duplications_max: int | None = None,
    start: routings.Routing | None = None,
    seed: int = 0,
    watch: Watch = UNWATCHED,
) -> Outcome:
    """Least cost of arcs and penalties; a broker sends a topic on ``duplications_max`` arcs.

    The answer costs no more than ``start``, if given and if that satisfies F2's rows.
    """
    how: dict[str, Any] = {"start": start, "seed": seed, "watch": watch}
    return _solve(instance, by_arcs=True, duplications_max=duplications_max, **how)


def _solve(
    instance: Instance,
    *,
    by_arcs: bool,
    duplications_max: int | None = None,
    start: routings.Routing | None,
    seed: int,
    watch: Watch,
) -> Outcome:
    model, columns = Model(), _Columns()
    terms: list[list[tuple[int, float]]] = [[] for _ in instance.capacity]
    for topic in range(instance.topics):
        _add_topic(instance, topic, model, columns, by_arcs=by_arcs)
        if by_arcs:
            _add_f2_rows(instance, topic, model, columns, duplications_max)
    for (topic, arc), column in columns.zeta.items():
        terms[instance.channel[arc]].append((column, float(instance.rate[topic])))
    for channel, carried in enumerate(terms):
        if carried:
            model.row(carried, least=-np.inf, most=float(instance.capacity[channel]))

    answer = minimise(
        model,
        seed=seed,
        watch=watch,
        start=None if start is None else _written(instance, columns, start, len(model.cost)),
        on_progress=lambda cost, bound: watch.report(Progress(0.0, cost, bound)),
    )
    return outcome(
        instance,
        _read(instance, columns, answer.values),
        method="f2" if by_arcs else "exact",
        lower_bound=answer.lower_bound,
        stopped=answer.stopped,
        by_arcs=by_arcs,
    )


def _add_topic(
    instance: Instance, topic: int, model: Model, columns: _Columns, *, by_arcs: bool
) -> None:
    """Add the variables of one topic, and the rows with these alone."""
    requests = instance.requests_of(topic)
    fan_out = float(requests.stop - requests.start)
    balance: dict[int, list[tuple[int, float]]] = {}
    feeds: dict[int, list[tuple[int, float]]] = {}
    for arc in np.flatnonzero(instance.usable(topic)).tolist():
        cost = float(instance.cost[arc])
        zeta = model.column(cost if by_arcs else 0.0, 1.0, whole=True)
        x = model.column(0.0 if by_arcs else cost, fan_out, whole=False)
        columns.zeta[topic, arc], columns.x[topic, arc] = zeta, x
        model.row([(x, 1.0), (zeta, -fan_out)], least=-np.inf, most=0.0)
        if by_arcs:
            model.row([(x, 1.0), (zeta, -1.0)], least=0.0, most=np.inf)
        balance.setdefault(int(instance.head[arc]), []).append((x, 1.0))
        balance.setdefault(int(instance.tail[arc]), []).append((x, -1.0))
        feeds.setdefault(int(instance.head[arc]), []).append((zeta, 1.0))
    for feed in feeds.values():
        model.row(feed, least=-np.inf, most=1.0)
    at: dict[int, int] = {}
    for request in range(requests.start, requests.stop):
        columns.unmet[request] = model.column(instance.unmet_penalty, 1.0, whole=True)
        at[int(instance.request_node[request])] = request
    source = int(instance.publisher[topic])
    for node in sorted(set(balance) | set(at)):
        if node == source:
            continue
        flow, demand = balance.get(node, []), float(node in at)
        if node in at:
            flow.append((columns.unmet[at[node]], 1.0))
        model.row(flow, least=demand, most=demand)


def _add_f2_rows(
    instance: Instance, topic: int, model: Model, columns: _Columns, duplications_max: int | None
) -> None:
    """Add (23), and (25) if there is a limit; without one, the balance implies (25)."""
    source = int(instance.publisher[topic])
    leaving: dict[int, list[int]] = {}
    entering: dict[int, list[int]] = {}
    for arc in np.flatnonzero(instance.usable(topic)).tolist():
        leaving.setdefault(int(instance.tail[arc]), []).append(columns.zeta[topic, arc])
        entering.setdefault(int(instance.head[arc]), []).append(columns.zeta[topic, arc])
    for node, out in leaving.items():
        terms = [(column, 1.0) for column in out]
        if node == source and instance.roles[node] is Role.PUBLISHER:
            model.row(terms, least=-np.inf, most=1.0)
        elif duplications_max is not None and node == source:
            model.row(terms, least=-np.inf, most=float(duplications_max))
        elif duplications_max is not None:
            fed = [(column, -float(duplications_max)) for column in entering.get(node, [])]
            model.row(terms + fed, least=-np.inf, most=0.0)


def _written(
    instance: Instance, columns: _Columns, routing: routings.Routing, count: int
) -> FloatArray:
    """``routing`` as values of the ``count`` columns."""
    values = np.zeros(count)
    for topic, arcs in enumerate(routing.arcs):
        paths = routings.paths_of(instance, topic, arcs)
        for request, path in enumerate(paths, start=int(instance.first_request[topic])):
            values[columns.unmet[request]] = path is None
            for arc in path or ():
                values[columns.zeta[topic, arc]] = 1.0
                values[columns.x[topic, arc]] += 1.0
    return values


def _read(instance: Instance, columns: _Columns, values: FloatArray | None) -> routings.Routing:
    """The arcs that carry flow; none if HiGHS found no solution."""
    if values is None:
        return routings.empty(instance)
    arcs: list[list[int]] = [[] for _ in range(instance.topics)]
    for (topic, arc), column in columns.zeta.items():
        if values[column] > CHOSEN and values[columns.x[topic, arc]] > CHOSEN:
            arcs[topic].append(arc)
    return routings.prune(instance, routings.from_arcs(arcs))
