"""Discovery: which filters the clients of our own broker subscribe to."""

from federator.protocol.discovery.discovery import (
    SYS_TOPICS,
    VERSION_TOPIC,
    Discovery,
    DiscoveryEffect,
)
from federator.protocol.discovery.interest import InterestChanged, MembersChanged
from federator.protocol.discovery.log_lines import LOG_TOPICS
from federator.protocol.discovery.parameters import DiscoveryParameters
from federator.protocol.discovery.reconciliation import CallRoll, CountOwn, ProbeCounts
from federator.protocol.discovery.records import (
    DiscoveryRecord,
    DiscoverySnapshot,
    decode_record,
    encode_record,
)
from federator.protocol.discovery.roll_call import RollCall
from federator.protocol.discovery.subscription_table import ClientFlow

__all__ = [
    "LOG_TOPICS",
    "SYS_TOPICS",
    "VERSION_TOPIC",
    "CallRoll",
    "ClientFlow",
    "CountOwn",
    "Discovery",
    "DiscoveryEffect",
    "DiscoveryParameters",
    "DiscoveryRecord",
    "DiscoverySnapshot",
    "InterestChanged",
    "MembersChanged",
    "ProbeCounts",
    "RollCall",
    "decode_record",
    "encode_record",
]
