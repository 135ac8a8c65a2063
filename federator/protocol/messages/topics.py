"""Every topic of ours on a broker: below ``$fed/<federation>/``, and links' states in ``$SYS``.

Agents, neighbours, gateways, collectors and operators meet on these topics. They are all named in
one place because access to them is decided elsewhere: an operator's ACL is made from them
(``runtime.doctor.access_list``). Each is a function of the federation's name; a topic that one
party has for itself also takes that broker, gateway or token.

Source: docs/protocol.md 2.
"""

from collections.abc import Callable
from typing import Final

from federator.protocol.types import BrokerId

DATA: Final = "data"
"""The last level of the topic of frames."""

OUTBOX_TRIED: Final = "doctor"
"""The last topic level on which the owner of an outbox may publish, to test that it receives."""

DOCTORS_WORD: Final = b"federator doctor"
"""What the doctor publishes to test whether it may. A running agent ignores it."""


def _at(name: str) -> Callable[[str], str]:
    return lambda federation: f"$fed/{federation}/{name}"


def _below(name: str) -> Callable[[str, str | int], str]:
    return lambda federation, whose: f"$fed/{federation}/{name}/{whose}"


def control_topic(federation: str, kind: str) -> str:
    """Where neighbours publish control messages of this kind, one of ``codec.CONTROL_KINDS``."""
    return f"$fed/{federation}/{kind}"


def outbox_topic(federation: str, broker: BrokerId | str, kind: str) -> str:
    """Where an agent publishes, on its own broker, for the agent of ``broker``, which dials us and
    cannot be dialled: control messages by ``kind``, and ``DATA``.
    """
    return f"$fed/{federation}/outbox/{broker}/{kind}"


def connection_state_topic(broker: BrokerId) -> str:
    """Where the agent of ``broker`` publishes, retained on neighbours' brokers, whether the link is
    up (1) or not (0): the one topic below ``$SYS`` on which Mosquitto lets clients publish, as
    bridges do.
    """
    return f"$SYS/broker/connection/federator-{broker}/state"


all_topics = _at("#")  # a filter of everything that a federation's parts send to each other
data_topic = _at(DATA)  # where neighbours publish frames
registrations_topic = _at("new_regular_topic")  # where clients may name filters themselves
# No part uses it: a client that may write there is restricted by no ACL of ours.
nobodys_topic = _at("nobody")
agents_topic = _at("agent")  # where agents announce that they are at this broker

# What agents, doctors and gateways publish at a broker for themselves
cover_topic = _at("cover")  # marks between the stages of a change of subscriptions
delivered_topic = _below("delivered")  # up to which frame it has delivered, retained
retained_mark_topic = _at("retained_mark")  # begin and end of a scan of what the broker retains
echo_topic = _below("echo")  # published to measure the broker's delay
probe_topic = _at("probe")  # subscribed to see how the broker counts; nothing is published there
doctor_topic = _below("doctor")  # where ``federator doctor`` tests whether it may publish
# Where gateways test whether the broker lives; nothing subscribes to it.
alive_topic = _below("alive")

# The guide, gateways and operators: the messages are in ``guide``, ``gateways`` and ``operators``
guide_topic = _at("guide")  # each agent's ``Guide``, retained
health_topic = _at("health")  # each agent's ``Health``, retained
sessions_topic = _at("sessions")  # gateways' ``SessionReport``
settle_topic = _at("settle")  # gateways' ``Settle``,
settled_topic = _below("settled")  # and the answers, ``Settled``
mark_topic = _at("mark")  # gateways' ``Mark``, at QoS 1: behind what has QoS 1 and 2,
taken_topic = _below("taken")  # and the answers, ``Taken``
claims_topic = _at("claims")  # gateways' ``Claim``
recall_topic = _at("recall")  # gateways' ``Recall``,
recalled_topic = _below("recalled")  # and others' answers, ``Recalled``
fetch_topic = _at("fetch")  # gateways' ``Fetch``,
fetched_topic = _below("fetched")  # and the agent's answers, ``Fetched``
trace_topic = _at("trace")  # ``Trace`` of ``federator trace``,
traced_topic = _below("traced")  # and the answers, ``Traced``
drain_topic = _at("drain")  # ``Drain`` of ``federator drain`` and consoles
page_topic = _at("page")  # ``PageQuestion`` of consoles,
paged_topic = _below("paged")  # and the answers, ``PageAnswer``

# Steering: the messages are in ``steering``
load_topic = _at("load")  # each agent's ``Load``, while a plan holds,
plan_topic = _at("plan")  # and the steerer's ``Plan`` for this broker, retained

# The metrics stream: the messages are in ``telemetry.replay``
metrics_table_topic = _below("metrics")  # the records of a batch that belong to a table
metrics_head_topic = _at("metrics/head")  # each agent's ``Head``, retained
metrics_ask_topic = _at("metrics/ask")  # readers' ``Ask``,
metrics_again_topic = _below("metrics/again")  # and the answers
