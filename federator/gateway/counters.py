"""What a gateway counts."""

from dataclasses import dataclass


@dataclass(slots=True)
class GatewayCounters:
    """Since the start.

    Attributes:
        admitted: Clients let in.
        refused: Connections sent away before that.
        dismissed: Clients that we disconnected.
        takeovers: Clients whose id came again.
        moved: Clients attached to another broker.
        healed: Publications given to clients that missed them.
        republished: Publications given to another broker, their own having died.
        settled: Subscriptions known everywhere before the client heard of them.
        unsettled: Those for which nobody said so in time.
        malformed: Words of agents that do not decode.
    """

    admitted: int = 0
    refused: int = 0
    dismissed: int = 0
    takeovers: int = 0
    moved: int = 0
    healed: int = 0
    republished: int = 0
    settled: int = 0
    unsettled: int = 0
    malformed: int = 0
