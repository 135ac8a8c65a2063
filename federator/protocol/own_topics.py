"""Where agents, neighbours and clients meet on a broker: every topic below ``$fed/<federation>/``
that neither the guide nor the metrics stream names (``guide``, ``metric_records.replay``).

Named in one place, because who may read and write them is decided elsewhere: an operator's ACL is
made from these (``runtime.access_list``).

Source: docs/protocol.md section 2.
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


def cohabitants_topic(federation: str) -> str:
    """Where agents say that they are at this broker."""
    return f"$fed/{federation}/agent"


def cover_topic(federation: str) -> str:
    """Where the agent marks stages of a change of its subscriptions, for itself."""
    return f"$fed/{federation}/cover"


def delivered_topic(federation: str, broker: BrokerId) -> str:
    """Where the agent keeps up to where it has delivered, for itself, retained."""
    return f"$fed/{federation}/delivered/{broker}"


def retained_mark_topic(federation: str) -> str:
    """Where the agent marks beginning and end of a look at what the broker retains, for itself."""
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
