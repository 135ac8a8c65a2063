"""Applies the operator's changes to links while they are in use.

Costs change as measured ones do: each change is a signal, and routes move without a loop
(docs/protocol.md 6). A neighbour that is no longer configured gets a bye with ``given_up``, so that
it does not dial back; hellos that it sent before it received the bye do not make us dial back
either. A neighbour whose own operator configured us continues to send hellos, and is then dialled
back: either end can make a link.
"""

from federator.protocol import effects as e
from federator.protocol.events import LinksConfigured, NamedNeighbour
from federator.protocol.links.links import Links
from federator.protocol.links.neighbour import LinkConnection
from federator.protocol.messages.control import Bye
from federator.protocol.parameters import LinkCost
from federator.protocol.signals import LinkCostChanged, Step
from federator.protocol.types import Cost, Millis

LET_BE_TIMEOUTS = 2
"""A neighbour that was given up may send hellos for one timeout, and these count for another."""


def follow(configured: LinksConfigured, links: Links, *, now_ms: Millis) -> list[Step]:
    """Make ``links`` follow the operator's ``configured``."""
    named = {entry.address: entry for entry in configured.neighbours}
    steps: list[Step] = []
    for _, connection in sorted(links.connections.items()):
        if connection.address in configured.given_up:
            steps += _give_up(connection, links, now_ms)
            continue
        named_neighbour = named.get(connection.address)
        if named_neighbour is not None and named_neighbour.expected_id != connection.expected_id:
            steps += _expect(named_neighbour, connection, links)
        cost = None if named_neighbour is None else named_neighbour.cost
        steps += _weigh(connection, cost, configured.link_cost, links)
    return steps


def _give_up(connection: LinkConnection, links: Links, now_ms: Millis) -> list[Step]:
    conn = connection.conn
    steps: list[Step] = [
        e.Send(conn, Bye(links.self_id, links.epoch, conn, given_up=True)),
        e.HangUp(conn),
    ]
    del links.connections[conn]
    if connection.neighbour is not None:
        neighbour = links.neighbours[connection.neighbour]
        steps += links.forget_hello(neighbour, "given up")
        neighbour.conn = neighbour.dialled = None
        let_be_ms = LET_BE_TIMEOUTS * links.parameters.hello_timeout_ms
        neighbour.let_be_until_ms = Millis(now_ms + let_be_ms)
    return steps


def _expect(named: NamedNeighbour, connection: LinkConnection, links: Links) -> list[Step]:
    """Handle another expected id for an address: the broker there may not be the one."""
    connection.expected_id = named.expected_id
    if connection.neighbour is None or named.expected_id in (None, connection.neighbour):
        return []
    neighbour = links.neighbours[connection.neighbour]
    connection.neighbour = neighbour.conn = None
    return links.take_down(neighbour, "is not the broker that is named")


def _weigh(
    connection: LinkConnection, cost: Cost | None, link_cost: LinkCost, links: Links
) -> list[Step]:
    """Change the cost; a link measured from now on keeps its cost until the next hello."""
    connection.measured = cost is None and link_cost is LinkCost.DELAY
    new_cost = connection.cost if connection.measured else cost or Cost(1)
    if new_cost == connection.cost:
        return []
    connection.cost = new_cost
    neighbour = connection.neighbour
    in_use = neighbour is not None and links.neighbours[neighbour].up
    return [LinkCostChanged(neighbour)] if neighbour is not None and in_use else []
