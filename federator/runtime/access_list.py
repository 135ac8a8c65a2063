"""Who needs which topics of a broker, as Mosquitto's acl_file: least rights, from our own names.

Everything that agents, gateways and collectors say to each other goes by the broker, and the broker
decides who may say it. Four parts are played there:

- the **agent** of this broker, which alone learns who subscribes to what;
- **peers**, the agents of neighbours: they speak to ours, and hear nothing;
- **gateways**, which read the guide, ask, and tell who is there;
- **collectors**, which ask for records.

Clients play none, and get nothing that begins with ``$``.

Pure: the same settings give the same lines.

Source: docs/security.md, "Brokers' ACLs"; mosquitto.conf(5), "acl_file".
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from federator.config import Settings
from federator.protocol import discovery, guide
from federator.protocol import own_topics as own
from federator.protocol.codec import CONTROL_KINDS
from federator.protocol.filters import contains
from federator.protocol.metric_records import again_topic, ask_topic, head_topic, table_topic
from federator.runtime import loop_watch, rivals
from federator.runtime.doctor import CLIENTS_TOPIC
from federator.runtime.metrics_stream.state import SYS_TOPICS
from federator.runtime.retained_looks import UPTIME_TOPIC

Right = Literal["read", "write", "readwrite"]
Grants = Mapping[str, Right]

AGENT: Final = "federator"
"""The user that is written where the configuration names none."""

_ANY: Final = "+"


def agent_grants(settings: Settings) -> Grants:
    """What the agent of this broker needs, and the verbs that use its name."""
    federation = settings.federation
    may_hear = (
        *(own.control_topic(federation, kind) for kind in CONTROL_KINDS),
        own.registrations_topic(federation),
        own.probe_topic(federation),
        guide.sessions_topic(federation),
        guide.settle_topic(federation),
        guide.mark_topic(federation),
        ask_topic(federation),
        *discovery.LOG_TOPICS,
        *discovery.SYS_TOPICS,
        *SYS_TOPICS,
        UPTIME_TOPIC,
        rivals.LOG_TOPIC,
        loop_watch.STATE_FILTER,
    )
    may_say = (
        guide.guide_topic(federation),
        guide.health_topic(federation),
        guide.settled_topic(federation, _ANY),
        guide.taken_topic(federation, _ANY),
        table_topic(federation, _ANY),
        again_topic(federation, _ANY),
    )
    both = (
        own.data_topic(federation),  # the doctor writes there
        *([guide.mark_topic(federation)] if settings.failover.prepare_sessions else []),
        guide.drain_topic(federation),  # `federator drain` does
        guide.trace_topic(federation),  # `federator trace` does, and hears the answers
        guide.traced_topic(federation, _ANY),
        own.cohabitants_topic(federation),
        own.cover_topic(federation),
        own.retained_mark_topic(federation),
        own.delivered_topic(federation, settings.broker_id),
        own.echo_topic(federation, settings.broker_id),
        own.doctor_topic(federation, _ANY),
        *_clients_topics(settings),
    )
    return _grants(read=may_hear, write=may_say, both=both)


def peer_grants(federation: str) -> Grants:
    """What the agents of neighbours need here: they only speak."""
    topics = (own.control_topic(federation, kind) for kind in CONTROL_KINDS)
    return _grants(write=(*topics, own.data_topic(federation), loop_watch.STATE_FILTER))


def gateway_grants(federation: str) -> Grants:
    """What gateways need for themselves; their clients have names and rights of their own."""
    return _grants(
        read=(
            guide.guide_topic(federation),
            guide.settled_topic(federation, _ANY),
            guide.taken_topic(federation, _ANY),
        ),
        write=(
            guide.settle_topic(federation),
            guide.mark_topic(federation),
            guide.sessions_topic(federation),
            own.alive_topic(federation, _ANY),
        ),
        both=(
            guide.claims_topic(federation),
            guide.recall_topic(federation),
            guide.recalled_topic(federation, _ANY),
        ),
    )


def collector_grants(federation: str) -> Grants:
    """What a collector, or whoever else reads the metrics stream, needs."""
    return _grants(
        read=(
            guide.guide_topic(federation),
            head_topic(federation),
            again_topic(federation, _ANY),
        ),
        write=(ask_topic(federation),),
    )


def access_list(
    settings: Settings,
    *,
    agent: str,
    peers: Sequence[str],
    gateways: Sequence[str],
    collectors: Sequence[str],
) -> list[str]:
    """The lines of an acl_file for our broker.

    Args:
        settings: Of its agent.
        agent: The user name of the agent.
        peers: Those of other agents.
        gateways: Those of gateways.
        collectors: Those of collectors.
    """
    federation = settings.federation
    parts = [
        ("the agent of this broker", [agent], agent_grants(settings)),
        ("agents of neighbours", peers, peer_grants(federation)),
        ("gateways", gateways, gateway_grants(federation)),
        ("collectors", collectors, collector_grants(federation)),
    ]
    by_user: dict[str, dict[str, Right]] = {}
    whats: dict[str, list[str]] = {}
    for what, users, grants in parts:
        for user in users:
            whats.setdefault(user, []).append(what)
            rights = by_user.setdefault(user, {})
            for topic, right in grants.items():
                rights[topic] = _either(rights.get(topic), right)
    lines = [
        f"# Broker {settings.broker.id} of federation {federation}: what agents, gateways and",
        "# collectors need, and no more. Made by `federator doctor --acl`.",
        "",
        "# Everybody: all topics but those that begin with $. Put what your clients need here.",
        "pattern readwrite #",
        "# Clients that name filters themselves also need:",
        f"#pattern write {own.registrations_topic(federation)}",
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


def _either(one: Right | None, other: Right) -> Right:
    return other if one in (None, other) else "readwrite"
