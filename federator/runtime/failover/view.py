"""The controller page of an agent: session flow table, equivalent brokers, takeovers.

Any agent can answer, for all hold the same table; the controller's own answer is in force.
"""

from collections.abc import Mapping
from itertools import combinations

from federator.protocol.controller.duties import candidates
from federator.protocol.controller.failover import Failover
from federator.protocol.controller.flow_table import Likeness, relate
from federator.protocol.messages.broker_names import named
from federator.protocol.types import BrokerId

ROWS_LISTED_MAX = 1_000
RELATIONS_LISTED_MAX = 1_000
CANDIDATES_LISTED_MAX = 4

Answer = dict[str, object]


def controller_page(failover: Failover, self_id: BrokerId) -> Answer:
    """Everything ``federator controller status`` shows."""
    guide, names = failover.guide(), failover.names()
    brokers = [broker.id for broker in guide.brokers]
    return {
        "enabled": failover.active,
        "broker": self_id,
        "controller": failover.controller,
        "is_controller": failover.is_controller,
        "term": guide.epoch,
        "number": guide.number,
        "brokers": [
            {
                "broker": broker.id,
                "name": names.get(broker.id, ""),
                "state": broker.state,
                "clients": broker.clients,
                "load": broker.load,
                "address": broker.address,
                "rows": failover.table.count(broker.id),
                "substitutes": list(broker.substitutes),
                "why": _why(failover, broker.id, names),
            }
            for broker in guide.brokers
        ],
        "takeovers": [
            {"broker": t.broker, "substitute": t.substitute, "term": t.epoch, "number": t.number}
            for t in guide.takeovers
        ],
        "equivalences": _equivalences(failover, brokers),
        "table": _table(failover, brokers),
        "table_total": len(failover.table),
        "names": {str(id): name for id, name in names.items()},
    }


def _why(failover: Failover, broker: BrokerId, names: Mapping[BrokerId, str]) -> list[str]:
    """The best candidates as of now, each with its reasons."""
    best = candidates(broker, failover.situation(), failover.table)
    return [f"{named(c.id, names.get(c.id, ''))}: {c.why}" for c in best[:CANDIDATES_LISTED_MAX]]


def _equivalences(failover: Failover, brokers: list[BrokerId]) -> list[Answer]:
    answers: list[Answer] = []
    for a, b in combinations(brokers, 2):
        relation = relate(failover.table, a, b)
        if relation.likeness is not Likeness.NONE and len(answers) < RELATIONS_LISTED_MAX:
            answers.append(
                {
                    "a": a,
                    "b": b,
                    "equivalence": relation.likeness.word,
                    "clients": list(relation.clients),
                    "topics": list(relation.topics),
                }
            )
    return answers


def _table(failover: Failover, brokers: list[BrokerId]) -> list[Answer]:
    rows = ((broker, row) for broker in brokers for row in failover.table.rows(broker))
    return [
        {
            "client": row.client,
            "broker": broker,
            "action": row.action,
            "topic": row.topic,
            "on": row.on,
            "session": "kept" if row.keeps else "ends",
        }
        for (broker, row), _ in zip(rows, range(ROWS_LISTED_MAX), strict=False)
    ]
