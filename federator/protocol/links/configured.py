"""Links follow what the operator says of them while they are in use.

Costs change as measured ones do: each is a signal, and routes move without a loop
(docs/protocol.md 6). A neighbour that is named no more is said goodbye to, in words that tell it
not to call back; what it said before it heard of that is no reason to call it back either. One
whose own operator names us goes on speaking here, and then is dialled back: a link is made by
either end.
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
"""Who was given up may still be heard for a timeout, and what it says then counts for another."""


def follow(word: LinksConfigured, links: Links, *, now_ms: Millis) -> list[Step]:
    """Let ``links`` be as the operator's ``word`` has them."""
    named = {each.address: each for each in word.neighbours}
    steps: list[Step] = []
    for _, connection in sorted(links.connections.items()):
        if connection.address in word.given_up:
            steps += _give_up(connection, links, now_ms)
            continue
        said = named.get(connection.address)
        if said is not None and said.expected_id != connection.expected_id:
            steps += _expect(said, connection, links)
        cost = None if said is None else said.cost
        steps += _weigh(connection, cost, word.link_cost, links)
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


def _expect(said: NamedNeighbour, connection: LinkConnection, links: Links) -> list[Step]:
    """Another id is wanted at an address than before: who is there may not be the one."""
    connection.expected_id = said.expected_id
    if connection.neighbour is None or said.expected_id in (None, connection.neighbour):
        return []
    neighbour = links.neighbours[connection.neighbour]
    connection.neighbour = neighbour.conn = None
    return links.take_down(neighbour, "is not the broker that is named")


def _weigh(
    connection: LinkConnection, cost: Cost | None, link_cost: LinkCost, links: Links
) -> list[Step]:
    """What is measured from now on keeps its cost until the next hello."""
    connection.measured = cost is None and link_cost is LinkCost.DELAY
    wanted = connection.cost if connection.measured else cost or Cost(1)
    if wanted == connection.cost:
        return []
    connection.cost = wanted
    who = connection.neighbour
    in_use = who is not None and links.neighbours[who].up
    return [LinkCostChanged(who)] if who is not None and in_use else []
