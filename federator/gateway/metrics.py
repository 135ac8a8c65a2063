"""The gateway's counters and Prometheus metrics. Source: docs/observability.md."""

from dataclasses import dataclass
from typing import Final

from federator.runtime.process.exposition import table


@dataclass(slots=True)
class GatewayCounters:
    """Counters since the gateway's start; ``GATEWAY`` describes them."""

    admitted: int = 0
    refused: int = 0
    gave_way: int = 0
    over_share: int = 0
    dismissed: int = 0
    takeovers: int = 0
    moved: int = 0
    healed: int = 0
    republished: int = 0
    settled: int = 0
    unsettled: int = 0
    malformed: int = 0


GATEWAY: Final = table(
    "federator_gateway",
    """
counter counters
  admitted clients_admitted Clients let in.
  refused connections_refused Connections sent away before they were clients.
  gave_way connections_gave_way Connections that no broker had accepted, and whose place another
      needed.
  over_share connections_over_share Connections refused, as many of their address waiting for a
      broker's word.
  dismissed clients_dismissed Clients that the gateway disconnected.
  takeovers client_takeovers Clients whose id came again.
  moved clients_moved Times that a client was attached to another broker.
  healed publications_healed Publications given to clients that missed them while they moved.
  republished publications_republished Publications given to another broker, their own having died.
  settled subscriptions_settled Subscriptions known everywhere before the client heard of them.
  unsettled subscriptions_unsettled Subscriptions for which nobody said so in time.
  malformed words_malformed Words of agents that do not decode.
counter .
  http_refused http_connections_refused HTTP connections that gave way to others.
gauge .
  ready ready 1 when clients can be attached to a broker.
  clients clients Clients connected.
  connecting clients_connecting Clients that no broker has accepted yet.
  unfinished connections_unfinished Connections without a whole CONNECT.
  connecting_bytes connecting_bytes Bytes sent by connections that no broker has accepted yet.
  away clients_away Clients without a broker.
  unsafe publications_unsafe Publications that only one broker is known to have.
gauge journal
  bytes journal_bytes Bytes of publications kept.
gauge brokers[id] broker
  up broker_up 1 when the broker answers.
  clients broker_clients Clients attached to the broker.
gauge . file
  certificates tls_certificate_expiry_timestamp_seconds When a TLS certificate that we present
      ends, as it was read at the start.
""",
)
