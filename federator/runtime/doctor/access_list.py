"""Who needs which topics of a broker, as Mosquitto's acl_file: least rights, from our own names.

Everything that agents, gateways, collectors, steerers and consoles say to each other goes by the
broker, and the broker decides who may say it. Eight parts are played there:

- the **agent** of this broker, which alone learns who subscribes to what;
- **peers**, the agents of neighbours: they speak to ours, and hear nothing;
- **outbound peers**, whose brokers ours cannot dial: they also hear what is said to them here, each
  what is said to itself;
- **leaves** of a hub: as these, and what they say and hear has topics of their own;
- **gateways**, which read the guide, ask, and tell who is there;
- **collectors**, which ask for records;
- **steerers**, which hear loads and tell plans;
- **consoles**, which ask for pages, trace, and give the orders of operators.

Clients play none, and get nothing that begins with ``$``.

Pure: the same settings give the same lines.

Source: docs/security.md, "Brokers' ACLs"; mosquitto.conf(5), "acl_file".
"""

from collections.abc import Mapping, Sequence
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
"""The user that is written where the configuration names none."""

_ANY: Final = "+"


def agent_grants(settings: Settings) -> Grants:
    """What the agent of this broker needs, and the verbs that use its name."""
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
        topics.data_topic(federation),  # the doctor writes there
        topics.mark_topic(federation),  # it asks itself how far it is, too
        topics.drain_topic(federation),  # `federator drain` does
        topics.trace_topic(federation),  # `federator trace` does, and hears the answers
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
    """What the agents of neighbours need: they only speak."""
    spoken = [topics.control_topic(federation, kind) for kind in CONTROL_KINDS]
    return _grants(write=(*spoken, topics.data_topic(federation), loop_watch.STATE_FILTER))


def outbound_grants(federation: str, broker: int) -> Grants:
    """What the agent of ``broker`` needs that ours cannot dial, beside the others' rights."""
    outbox = topics.outbox_topic(federation, BrokerId(broker), _ANY)
    tried = topics.outbox_topic(federation, BrokerId(broker), topics.OUTBOX_TRIED)
    return {**peer_grants(federation), **_grants(read=(outbox,), write=(tried,))}


def leaf_grants(port: PortSettings) -> Grants:
    """What the agent of a leaf needs here, whether it dials alone or is dialled, too."""
    health = topics.health_topic(port.federation)  # by which it looks for a hub
    return {**outbound_grants(port.federation, port.leaf.id), **_grants(read=(health,))}


def gateway_grants(federation: str) -> Grants:
    """What gateways need for themselves; their clients have names and rights of their topics."""
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
    """What a collector, or whoever else reads the metrics stream, needs."""
    return _grants(
        read=(
            topics.guide_topic(federation),
            topics.metrics_head_topic(federation),
            topics.metrics_again_topic(federation, _ANY),
        ),
        write=(topics.metrics_ask_topic(federation),),
    )


def steerer_grants(federation: str) -> Grants:
    """What a steerer needs; it hears the plans of others, too."""
    return _grants(
        read=(topics.guide_topic(federation), topics.load_topic(federation)),
        both=(topics.plan_topic(federation),),
    )


def console_grants(federation: str) -> Grants:
    """What a console needs; one that only shows may be kept from ``drain``."""
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


def access_list(
    settings: Settings,
    *,
    agent: str,
    peers: Sequence[str],
    outbound: Mapping[str, int],
    gateways: Sequence[str],
    collectors: Sequence[str],
    steerers: Sequence[str],
    consoles: Sequence[str],
) -> list[str]:
    """The lines of an acl_file for our broker, given the user names of those who come there.

    Args:
        outbound: Which broker's agent each user is that takes what is said to it here.
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
        ("gateways", gateways, gateway_grants(federation)),
        ("collectors", collectors, collector_grants(federation)),
        ("steerers", steerers, steerer_grants(federation)),
        ("consoles", consoles, console_grants(federation)),
    ]
    by_user: dict[str, dict[str, Right]] = {}
    whats: dict[str, list[str]] = {}
    for what, users, grants in parts:
        for user in users:
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
