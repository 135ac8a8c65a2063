"""Every topic of ours on a broker: below ``$fed/<federation>/``, and links' states in ``$SYS``.

Here agents, neighbours, gateways, collectors and operators meet. The topics are named in one place
because who may read and write them is decided elsewhere: an operator's ACL is made from these
(``runtime.doctor.access_list``). Each is asked for with the federation's name; those that somebody
has alone, also with that broker, gateway or token.

Source: docs/protocol.md 2.
"""

from collections.abc import Callable
from typing import Final

from federator.protocol.types import BrokerId

DATA: Final = "data"
"""The last level of the topic of frames."""

OUTBOX_TRIED: Final = "doctor"
"""The last level of the topic in an outbox on which its owner may speak, to see that it hears."""

DOCTORS_WORD: Final = b"federator doctor"
"""What the doctor publishes to see whether it may. An agent at work there thinks nothing of it."""


def _at(name: str) -> Callable[[str], str]:
    return lambda federation: f"$fed/{federation}/{name}"


def _below(name: str) -> Callable[[str, str | int], str]:
    return lambda federation, whose: f"$fed/{federation}/{name}/{whose}"


def control_topic(federation: str, kind: str) -> str:
    """Where neighbours publish control messages of this kind, one of ``codec.CONTROL_KINDS``."""
    return f"$fed/{federation}/{kind}"


def outbox_topic(federation: str, broker: BrokerId | str, kind: str) -> str:
    """Where an agent publishes, on its own broker, for that of ``broker``, which dials us and
    cannot be dialled: control messages by ``kind``, and ``DATA``.
    """
    return f"$fed/{federation}/outbox/{broker}/{kind}"


def connection_state_topic(broker: BrokerId) -> str:
    """Where the agent of ``broker`` says, retained on neighbours' brokers, that the link is up (1)
    or not (0): the one topic below ``$SYS`` on which Mosquitto lets clients speak, as bridges do.
    """
    return f"$SYS/broker/connection/federator-{broker}/state"


all_topics = _at("#")  # a filter of everything that a federation's parts say to each other
data_topic = _at(DATA)  # where neighbours publish frames
registrations_topic = _at("new_regular_topic")  # where clients may name filters themselves
nobodys_topic = _at("nobody")  # no part needs it: who may write there is kept off by no ACL of ours
agents_topic = _at("agent")  # where agents say that they are at this broker

# What agents, doctors and gateways say at a broker for themselves
cover_topic = _at("cover")  # marks between the stages of a change of subscriptions
delivered_topic = _below("delivered")  # up to where it has delivered, retained
retained_mark_topic = _at("retained_mark")  # begin and end of a scan of what the broker retains
echo_topic = _below("echo")  # published to see how long the broker takes
probe_topic = _at("probe")  # subscribed to see how it counts; nothing is published there
doctor_topic = _below("doctor")  # where ``federator doctor`` tries whether it may publish
alive_topic = _below("alive")  # where gateways see whether the broker lives; nobody listens

# The guide, gateways and operators: the words are in ``guide``, ``gateways`` and ``operators``
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

# Steering: the words are in ``steering``
load_topic = _at("load")  # each agent's ``Load``, while a plan holds,
plan_topic = _at("plan")  # and the steerer's ``Plan`` for this broker, retained

# The metrics stream: the words are in ``telemetry.replay``
metrics_table_topic = _below("metrics")  # the records of a batch that belong to a table
metrics_head_topic = _at("metrics/head")  # each agent's ``Head``, retained
metrics_ask_topic = _at("metrics/ask")  # readers' ``Ask``,
metrics_again_topic = _below("metrics/again")  # and the answers
