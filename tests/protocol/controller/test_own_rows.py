"""Our rows: the log and gateways together, and which of too many travel."""

from federator.protocol.controller.own_rows import own_rows
from federator.protocol.discovery import ClientFlow
from federator.protocol.messages.gateways import ReportedSession
from federator.protocol.messages.session_records import FlowRow


def flow(id, *filters, keeps=False):
    return ClientFlow(id, connected=True, keeps=keeps, filters=dict.fromkeys(filters, 1))


def rows(clients, sessions=(), *, may_tell=lambda filter: True, rows_max=100):
    return list(own_rows(clients, sessions, may_tell=may_tell, rows_max=rows_max))


def test_of_one_client_the_gateway_is_believed_about_its_session_and_the_log_about_qos():
    session = ReportedSession("c", on=True, clean=False, subscribes=("f", "g"), publishes=("t",))

    found = rows([flow("c", "f"), flow("d", "f")], [session])

    assert sorted(found) == [
        FlowRow("c", "pub", "t", session.on, True, 0, True),
        FlowRow("c", "sub", "f", True, True, 1, True),
        FlowRow("c", "sub", "g", session.on, True, 1, True),
        FlowRow("d", "sub", "f", True, False, 1, False),
    ]


def test_of_too_many_rows_those_of_sessions_that_last_go_first():
    clients = [flow("a", "f", "g"), flow("z", "f", "g", keeps=True)]

    found = rows(clients, rows_max=3)

    assert [(row.client, row.topic) for row in found] == [("z", "f"), ("z", "g"), ("a", "f")]


def test_what_the_federation_may_not_know_is_no_row():
    found = rows([flow("c", "secret", "$share/g/open")], may_tell=lambda filter: filter == "open")

    assert [row.topic for row in found] == ["$share/g/open"]
