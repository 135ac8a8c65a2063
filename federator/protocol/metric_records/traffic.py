"""Traffic: what was offered, what arrived for whom, and how long it took.

``deliveries`` counts each publication once, however many filters it matched; ``offered`` and
``arrived`` count it once for each filter it was routed by, at both of its ends, so that the
difference of the two is what is missing between an origin and a destination.

Source: docs/metrics.md, "deliveries", "offered", "arrived".
"""

from typing import Annotated

import msgspec

from federator.protocol.metric_records.envelope import (
    Id,
    Natural,
    QosLevel,
    Record,
    Signed,
    StrategyName,
    Text,
)
from federator.protocol.metric_records.sketch import BUCKETS_MAX

Buckets = Annotated[list[tuple[Natural, Natural]], msgspec.Meta(max_length=BUCKETS_MAX)]


class Deliveries(Record, frozen=True, kw_only=True, tag="deliveries"):
    """Publications handed to the reporter's broker for its clients.

    Attributes:
        origin: Where they were published.
        hops: Links travelled.
        qos: 0, or 1 for what was under custody (QoS 1 and 2).
        strategy: The reporter's routing.
        redundancy: Parents per core that the reporter keeps.
        publications: How many.
        bytes: Of their PUBLISH packets.
        frames: That carried them.
        out_of_order: Of them, in frames numbered below one of that origin that was here before.
        repaired: Of them, that came as a repair.
        base_us: The smallest delay; negative when clocks disagree.
        sum_us: Of all delays, each publication counted.
        min_us: The smallest delay.
        max_us: The greatest.
        delay: ``[bucket, publications]``, ascending, of delay minus ``base_us``.
    """

    origin: Id
    hops: Natural
    qos: QosLevel
    strategy: StrategyName
    redundancy: Natural
    publications: Natural
    bytes: Natural
    frames: Natural
    out_of_order: Natural
    repaired: Natural
    base_us: Signed
    sum_us: Signed
    min_us: Signed
    max_us: Signed
    delay: Buckets


class Offered(Record, frozen=True, kw_only=True, tag="offered"):
    """Publications of the reporter's own clients that others wanted.

    Attributes:
        filter: One filter they were routed by.
        qos: As in ``Deliveries``.
        strategy: The reporter's routing.
        publications: How many.
        bytes: Of their PUBLISH packets.
    """

    filter: Text
    qos: QosLevel
    strategy: StrategyName
    publications: Natural
    bytes: Natural


class Arrived(Record, frozen=True, kw_only=True, tag="arrived"):
    """Publications of others handed to the reporter's broker.

    Attributes:
        filter: One filter they were routed by that the reporter's clients subscribe to.
        origin: Where they were published.
        qos: As in ``Deliveries``.
        strategy: The reporter's routing.
        publications: How many.
        bytes: Of their PUBLISH packets.
    """

    filter: Text
    origin: Id
    qos: QosLevel
    strategy: StrategyName
    publications: Natural
    bytes: Natural
