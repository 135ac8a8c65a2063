"""Every topic of ours on a broker: below ``$fed/<federation>/``, and links' states in ``$SYS``.

Here agents, neighbours, gateways, collectors and operators meet. The topics are named in one place
because who may read and write them is decided elsewhere: an operator's ACL is made from these
(``runtime.doctor.access_list``).

Source: docs/protocol.md 2.
"""

from typing import Final

from federator.protocol.types import BrokerId

DOCTORS_WORD: Final = b"federator doctor"
"""What the doctor publishes to see whether it may. An agent at work there thinks nothing of it."""


def control_topic(federation: str, kind: str) -> str:
    """Where neighbours publish control messages of this kind, one of ``codec.CONTROL_KINDS``."""
    return f"$fed/{federation}/{kind}"


def data_topic(federation: str) -> str:
    """Where neighbours publish frames."""
    return f"$fed/{federation}/data"


def registrations_topic(federation: str) -> str:
    """Where clients may name filters themselves."""
    return f"$fed/{federation}/new_regular_topic"


def nobodys_topic(federation: str) -> str:
    """What no part of a federation needs: who may write there is kept off by no ACL of ours."""
    return f"$fed/{federation}/nobody"


def all_topics(federation: str) -> str:
    """A filter of everything that a federation's parts say to each other."""
    return f"$fed/{federation}/#"


def agents_topic(federation: str) -> str:
    """Where agents say that they are at this broker."""
    return f"$fed/{federation}/agent"


def cover_topic(federation: str) -> str:
    """Where the agent marks stages of a change of its subscriptions, for itself."""
    return f"$fed/{federation}/cover"


def delivered_topic(federation: str, broker: BrokerId) -> str:
    """Where the agent keeps up to where it has delivered, for itself, retained."""
    return f"$fed/{federation}/delivered/{broker}"


def retained_mark_topic(federation: str) -> str:
    """Where the agent marks beginning and end of a scan of what the broker retains, for itself."""
    return f"$fed/{federation}/retained_mark"


def echo_topic(federation: str, broker: int) -> str:
    """Where the agent publishes to itself, to see how long the broker takes."""
    return f"$fed/{federation}/echo/{broker}"


def probe_topic(federation: str) -> str:
    """What the agent subscribes to see how the broker counts; nothing is published there."""
    return f"$fed/{federation}/probe"


def doctor_topic(federation: str, nonce: str) -> str:
    """Where ``federator doctor`` tries whether it may publish."""
    return f"$fed/{federation}/doctor/{nonce}"


def alive_topic(federation: str, gateway: str) -> str:
    """Where a gateway publishes to see whether the broker lives; nobody listens."""
    return f"$fed/{federation}/alive/{gateway}"


# The guide, gateways and operators: the words are in ``guide``


def guide_topic(federation: str) -> str:
    """Where each agent keeps its ``Guide``, retained."""
    return f"$fed/{federation}/guide"


def sessions_topic(federation: str) -> str:
    """Where gateways publish ``SessionReport``."""
    return f"$fed/{federation}/sessions"


def settle_topic(federation: str) -> str:
    """Where gateways publish ``Settle``."""
    return f"$fed/{federation}/settle"


def settled_topic(federation: str, gateway: str) -> str:
    """Where the agent answers ``gateway`` with ``Settled``."""
    return f"$fed/{federation}/settled/{gateway}"


def mark_topic(federation: str) -> str:
    """Where gateways publish ``Mark``, at QoS 1: behind what has QoS 1 and 2."""
    return f"$fed/{federation}/mark"


def taken_topic(federation: str, gateway: str) -> str:
    """Where the agent answers ``gateway`` with ``Taken``."""
    return f"$fed/{federation}/taken/{gateway}"


def claims_topic(federation: str) -> str:
    """Where gateways publish ``Claim``."""
    return f"$fed/{federation}/claims"


def recall_topic(federation: str) -> str:
    """Where gateways publish ``Recall``."""
    return f"$fed/{federation}/recall"


def recalled_topic(federation: str, gateway: str) -> str:
    """Where others answer ``gateway`` with ``Recalled``."""
    return f"$fed/{federation}/recalled/{gateway}"


def health_topic(federation: str) -> str:
    """Where each agent keeps its ``Health``, retained."""
    return f"$fed/{federation}/health"


def trace_topic(federation: str) -> str:
    """Where ``federator trace`` publishes ``Trace``."""
    return f"$fed/{federation}/trace"


def traced_topic(federation: str, token: str) -> str:
    """Where the agent answers with ``Traced``."""
    return f"$fed/{federation}/traced/{token}"


def connection_state_topic(broker: BrokerId) -> str:
    """Where the agent of ``broker`` says, retained on neighbours' brokers, that the link is up (1)
    or not (0): the one topic below ``$SYS`` on which Mosquitto lets clients speak, as bridges do.
    """
    return f"$SYS/broker/connection/federator-{broker}/state"


def drain_topic(federation: str) -> str:
    """Where ``federator drain`` publishes ``Drain``."""
    return f"$fed/{federation}/drain"


# The metrics stream: the words are in ``telemetry.replay``


def metrics_table_topic(federation: str, table: str) -> str:
    """Where each agent pushes the records of a batch that belong to ``table``."""
    return f"$fed/{federation}/metrics/{table}"


def metrics_head_topic(federation: str) -> str:
    """Where each agent keeps its ``Head``, retained."""
    return f"$fed/{federation}/metrics/head"


def metrics_ask_topic(federation: str) -> str:
    """Where readers publish ``Ask``."""
    return f"$fed/{federation}/metrics/ask"


def metrics_again_topic(federation: str, token: str) -> str:
    """Where the agent answers whoever gave ``token``."""
    return f"$fed/{federation}/metrics/again/{token}"
