"""Why a publication goes where it goes, for people."""

import msgspec

from federator.protocol.effects import FilterRoute
from federator.protocol.forwarding.forwarding import KEPT, Forwarder
from federator.protocol.forwarding.frames import keys_in
from federator.protocol.types import BrokerId


class MatchedFilter(msgspec.Struct, frozen=True):
    """One filter that matches an explained topic. ``why`` is one clause for people."""

    filter: str
    route: FilterRoute
    why: str


class Explanation(msgspec.Struct, frozen=True):
    """Where a publication on ``topic`` would go from here, and why."""

    topic: str
    filters: tuple[MatchedFilter, ...]
    next_hops: tuple[BrokerId, ...]
    why: str
    planned: bool = False  # by a steerer's tree, as far as the tree leads
    kept: bool = False  # here, as a steerer's plan says


def explain(forwarder: Forwarder, topic: str) -> Explanation:
    """Which filters match ``topic``, where a publication on it would go, and why not."""
    if topic.startswith("$"):
        return Explanation(topic, (), (), "topics that begin with $ stay on their broker")
    routes = forwarder.matching(topic)
    matched = tuple(MatchedFilter(f, route, _why(forwarder, route)) for f, route in routes.items())
    hops = sorted({hop for match in matched for hop in _hops_of(forwarder, match.route)})
    if not forwarder.allows_export(topic):
        return Explanation(topic, matched, (), "this broker's [rules] keep it here")
    tree = forwarder.trees.of_flow([f for f, route in routes.items() if route.wanted])
    going = forwarder.route_topic(topic)
    if going is KEPT:
        by = sorted({broker for match in matched for broker in match.route.destinations})
        return Explanation(topic, matched, (), _why_kept(by), kept=True)
    if tree and going is not None and tree in keys_in(going.keys):
        hops = [hop for hop, _ in going.sends]
        return Explanation(topic, matched, tuple(hops), "goes by a steerer's tree", planned=True)
    if hops:
        why = "goes to the next hops" + _why_not_kept(forwarder, matched)
    elif not matched:
        why = "no filter in the federation matches it, as far as we heard"
    elif any(match.route.wanted for match in matched):
        why = "others want it, but no neighbour leads to them now"
    else:
        why = "only our own clients want it"
    return Explanation(topic, matched, tuple(hops), why)


def _why_kept(by: list[BrokerId]) -> str:
    """Why a topic stays here that the brokers ``by`` collect."""
    if not by:
        return (
            "a steerer's plan keeps it here: only who collected it wanted it, and is out of reach"
        )
    brokers = f"broker {by[0]}" if len(by) == 1 else f"brokers {', '.join(map(str, by))}"
    return f"a steerer's plan keeps it here: only {brokers} would get it, to collect it"


def _why_not_kept(forwarder: Forwarder, matched: tuple[MatchedFilter, ...]) -> str:
    """Why a plan that keeps topics here does not keep this one, if some broker collects it."""
    if forwarder.keeping.policy is None:
        return ""
    if not all(m.route.collected for m in matched if m.route.wanted or m.route.next_hops):
        return "; not kept: somebody wants it, or is owed it, who does not say that he collects it"
    return "; not kept: a shared group wants it, or, under lp, no client here does"


def _hops_of(forwarder: Forwarder, route: FilterRoute) -> set[BrokerId]:
    ways = map(forwarder.next_hop_to, route.destinations)
    return {*route.next_hops, *(way for way in ways if way is not None)}


def _why(forwarder: Forwarder, route: FilterRoute) -> str:
    if route.collected:
        return "whoever wants it only collects"
    if _hops_of(forwarder, route):
        return "has next hops"
    if route.wanted:
        return "others want it, but no neighbour leads to them now"
    return "only our own clients subscribe to it"
