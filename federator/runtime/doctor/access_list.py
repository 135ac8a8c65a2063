"""The rights of each role on a broker's topics, as Mosquitto's acl_file: least rights.

Agents, gateways, collectors, steerers and consoles exchange all messages through the broker, which
decides what each may publish. It has eight roles:

- the **agent** of this broker, which alone learns what each client subscribes to;
- **peers**, the agents of neighbours: they publish for ours, and read nothing;
- **outbound peers**, on brokers that ours cannot dial: each also reads its own outbox here;
- **leaves** of a hub: like these, on topics of their own;
- **gateways**, which read the guide, ask, and announce their clients;
- **collectors**, which ask for records;
- **steerers**, which read loads and publish plans;
- **consoles**, which ask for pages, trace, and send the orders of operators.

Clients have no role, and get nothing that begins with ``$``.

Pure: the same settings give the same lines.

Source: docs/security.md, "Brokers' ACLs"; mosquitto.conf(5), "acl_file".
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from federator.config.settings import PortSettings, Settings
from federator.protocol import discovery
from federator.protocol.filters import contains
from federator.protocol.messages import topics
from federator.protocol.messages.codec import CONTROL_KINDS
from federator.protocol.types import BrokerId
from federator.runtime.doctor.doctor import CLIENTS_TOPIC
from federator.runtime.loops import watch as loop_watch
from federator.runtime.retained.scanner import UPTIME_TOPIC
from federator.runtime.telemetry.state import SYS_TOPICS

Right = Literal["read", "write", "readwrite"]
Grants = Mapping[str, Right]

AGENT: Final = "federator"
"""The user name to write where the configuration names none."""

_ANY: Final = "+"


def agent_grants(settings: Settings) -> Grants:
    """The rights of this broker's agent, and of the verbs that use its user name."""
    federation = settings.federation
    may_hear = (
        *(topics.control_topic(federation, kind) for kind in CONTROL_KINDS),
        topics.registrations_topic(federation),
        topics.probe_topic(federation),
        topics.sessions_topic(federation),
        topics.settle_topic(federation),
        topics.fetch_topic(federation),
        topics.metrics_ask_topic(federation),
        topics.plan_topic(federation),
        topics.page_topic(federation),
        *discovery.LOG_TOPICS,
        *discovery.SYS_TOPICS,
        *SYS_TOPICS,
        UPTIME_TOPIC,
        loop_watch.STATE_FILTER,
    )
    may_say = (
        topics.guide_topic(federation),
        topics.health_topic(federation),
        topics.settled_topic(federation, _ANY),
        topics.taken_topic(federation, _ANY),
        topics.fetched_topic(federation, _ANY),
        topics.metrics_table_topic(federation, _ANY),
        topics.metrics_again_topic(federation, _ANY),
        topics.load_topic(federation),
        topics.paged_topic(federation, _ANY),
        topics.outbox_topic(federation, _ANY, _ANY),
    )
    both = (
        topics.data_topic(federation),  # the doctor publishes there
        topics.mark_topic(federation),  # the agent also asks itself
        topics.drain_topic(federation),  # `federator drain` publishes there
        topics.trace_topic(federation),  # `federator trace` publishes there, and reads the answers
        topics.traced_topic(federation, _ANY),
        topics.agents_topic(federation),
        topics.cover_topic(federation),
        topics.retained_mark_topic(federation),
        topics.delivered_topic(federation, settings.broker_id),
        topics.echo_topic(federation, settings.broker_id),
        topics.doctor_topic(federation, _ANY),
        *_clients_topics(settings),
    )
    return _grants(read=may_hear, write=may_say, both=both)


def peer_grants(federation: str) -> Grants:
    """The rights of neighbours' agents: they only publish."""
    control_topics = [topics.control_topic(federation, kind) for kind in CONTROL_KINDS]
    return _grants(write=(*control_topics, topics.data_topic(federation), loop_watch.STATE_FILTER))


def outbound_grants(federation: str, broker: int) -> Grants:
    """The rights of the agent of ``broker``, which ours cannot dial, beside its other rights."""
    outbox = topics.outbox_topic(federation, BrokerId(broker), _ANY)
    tried = topics.outbox_topic(federation, BrokerId(broker), topics.OUTBOX_TRIED)
    return {**peer_grants(federation), **_grants(read=(outbox,), write=(tried,))}


def leaf_grants(port: PortSettings) -> Grants:
    """The rights of a leaf's agent here, whether it dials alone or is dialled, too."""
    health = topics.health_topic(port.federation)  # by which it chooses a hub
    return {**outbound_grants(port.federation, port.leaf.id), **_grants(read=(health,))}


def gateway_grants(federation: str) -> Grants:
    """The rights of gateways themselves; their clients have user names and rights of their own."""
    return _grants(
        read=(
            topics.guide_topic(federation),
            topics.settled_topic(federation, _ANY),
            topics.taken_topic(federation, _ANY),
            topics.fetched_topic(federation, _ANY),
        ),
        write=(
            topics.fetch_topic(federation),
            topics.settle_topic(federation),
            topics.mark_topic(federation),
            topics.sessions_topic(federation),
            topics.alive_topic(federation, _ANY),
        ),
        both=(
            topics.claims_topic(federation),
            topics.recall_topic(federation),
            topics.recalled_topic(federation, _ANY),
        ),
    )


def collector_grants(federation: str) -> Grants:
    """The rights of a collector, or of any other reader of the metrics stream."""
    return _grants(
        read=(
            topics.guide_topic(federation),
            topics.metrics_head_topic(federation),
            topics.metrics_again_topic(federation, _ANY),
        ),
        write=(topics.metrics_ask_topic(federation),),
    )


def steerer_grants(federation: str) -> Grants:
    """The rights of a steerer; it reads other steerers' plans, too."""
    return _grants(
        read=(topics.guide_topic(federation), topics.load_topic(federation)),
        both=(topics.plan_topic(federation),),
    )


def console_grants(federation: str) -> Grants:
    """The rights of a console; one that only displays may be denied ``drain``."""
    return _grants(
        read=(
            topics.guide_topic(federation),
            topics.health_topic(federation),
            topics.paged_topic(federation, _ANY),
            topics.traced_topic(federation, _ANY),
            topics.metrics_table_topic(federation, "events"),
        ),
        write=(
            topics.page_topic(federation),
            topics.trace_topic(federation),
            topics.drain_topic(federation),
        ),
    )


ROLES: Final[dict[str, Callable[[str], Grants]]] = {
    "gateway": gateway_grants,
    "collector": collector_grants,
    "steerer": steerer_grants,
    "console": console_grants,
}
"""The programs beside agents, and their rights in a federation."""


def access_list(
    settings: Settings,
    *,
    agent: str,
    peers: Sequence[str],
    outbound: Mapping[str, int],
    users: Mapping[str, Sequence[str]],
) -> list[str]:
    """The lines of an acl_file for our broker, given the user names of each role.

    Args:
        outbound: By user name, the broker of an agent that reads its outbox here.
        users: Those of each of ``ROLES``.
    """
    federation = settings.federation
    ports = [settings.for_leaf(leaf) for leaf in settings.leaves]
    parts: list[tuple[str, Sequence[str], Grants]] = [
        ("the agent of this broker", [agent], agent_grants(settings)),
        ("agents of neighbours", peers, peer_grants(federation)),
        *(
            (f"the agent of broker {id}, which only dials", [user], outbound_grants(federation, id))
            for user, id in outbound.items()
        ),
        *((f"what leaf {port.leaf.id} hangs at", [agent], agent_grants(port)) for port in ports),
        *(
            (f"leaf {port.leaf.id}", [f"{AGENT}-{port.leaf.id}"], leaf_grants(port))
            for port in ports
        ),
        *((f"{role}s", users[role], grants(federation)) for role, grants in ROLES.items()),
    ]
    by_user: dict[str, dict[str, Right]] = {}
    whats: dict[str, list[str]] = {}
    for what, names, grants in parts:
        for user in names:
            whats.setdefault(user, []).append(what)
            rights = by_user.setdefault(user, {})
            for topic, right in grants.items():
                rights[topic] = right if rights.get(topic, right) == right else "readwrite"
    lines = [
        f"# Broker {settings.broker.id} of federation {federation}: what agents, gateways,",
        "# collectors, steerers and consoles need, and no more. Made by `federator doctor --acl`.",
        "",
        "# Everybody: all topics but those that begin with $. Put what your clients need here.",
        "pattern readwrite #",
        "# Clients that name filters themselves also need:",
        f"#pattern write {topics.registrations_topic(federation)}",
    ]
    for user, rights in by_user.items():
        lines += ["", f"# For {' and '.join(whats[user])}:", f"user {user}"]
        lines += [f"topic {right} {topic}" for topic, right in sorted(rights.items())]
    return lines


def _clients_topics(settings: Settings) -> tuple[str, ...]:
    """What may cross the edge of this broker, by its names here, and what the doctor tries."""
    crossing = sorted({*settings.rules.imports, *settings.rules.exports})
    widest = [f for f in crossing if not any(o != f and contains(o, f) for o in crossing)]
    doctors = f"{CLIENTS_TOPIC}/{_ANY}"
    return (*widest, *(() if any(contains(f, doctors) for f in widest) else (doctors,)))


def _grants(
    *, read: Sequence[str] = (), write: Sequence[str] = (), both: Sequence[str] = ()
) -> Grants:
    grants: dict[str, Right] = dict.fromkeys(read, "read")
    grants |= dict.fromkeys(write, "write")
    grants |= dict.fromkeys(both, "readwrite")
    return grants
