"""Our rows of the session flow table, from what the broker's log and the gateways tell.

The log names each subscription with its QoS; a gateway knows publishers, and for certain whether a
session lasts. Where both speak of a client, the gateway is believed about the session.

When there are more rows than travel, those of sessions that last go first: without them nobody
could prepare for their clients.

Source: papers/topic-routing-and-rerouting.txt Table 11; docs/protocol.md section 15.
"""

from collections.abc import Callable, Iterable

from federator.protocol.controller.records import FlowRow, is_sound
from federator.protocol.discovery import ClientFlow
from federator.protocol.filters import without_share
from federator.protocol.guide import Session


def own_rows(
    clients: Iterable[ClientFlow],
    sessions: Iterable[Session],
    *,
    may_tell: Callable[[str], bool],
    rows_max: int,
) -> frozenset[FlowRow]:
    """All rows that may travel.

    Args:
        clients: From the log.
        sessions: From gateways; of one client the last counts.
        may_tell: Whether the federation may know of a topic or filter.
        rows_max: Rows at most.
    """
    reported = {session.client: session for session in sessions}
    rows: dict[tuple[str, str, str], FlowRow] = {}
    for client in clients:
        session = reported.get(client.id)
        keeps = client.keeps if session is None else not session.clean
        for filter, qos in client.filters.items():
            row = FlowRow(
                client.id, "sub", filter, client.connected, keeps, qos, session is not None
            )
            rows[client.id, "sub", filter] = row
    for session in reported.values():
        for filter in session.subscribes:
            row = FlowRow(session.client, "sub", filter, session.on, not session.clean, 1, True)
            rows.setdefault((row.client, row.action, row.topic), row)
        for topic in session.publishes:
            row = FlowRow(session.client, "pub", topic, session.on, not session.clean, 0, True)
            rows[row.client, row.action, row.topic] = row
    told = [row for row in rows.values() if is_sound(row) and may_tell(without_share(row.topic))]
    told.sort(key=lambda row: (not row.keeps, row))
    return frozenset(told[:rows_max])
