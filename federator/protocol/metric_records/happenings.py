"""Instants and measurements: what changed, single frames on their way, and what clients saw.

Source: docs/metrics.md, "events", "hops", "clients".
"""

from typing import Annotated

import msgspec

from federator.protocol.metric_records.envelope import (
    Flag,
    Id,
    Natural,
    QosLevel,
    Record,
    Signed,
    StrategyName,
    Text,
)
from federator.protocol.metric_records.traffic import Buckets

DELAYS_MAX = 100_000


class Events(Record, frozen=True, kw_only=True, tag="events"):
    """Something changed.

    Attributes:
        kind: What, of the list in docs/metrics.md; more kinds may come without a new version.
        neighbour: With whom, if with one.
        filter: Of which filter, if of one.
        subject: Which broker it is about, if not the reporter.
        detail: One clause for people.
        value: The number that goes with it, if one does.
    """

    kind: Text
    neighbour: Id | None = None
    filter: Text | None = None
    subject: Id | None = None
    detail: Text | None = None
    value: Signed | None = None


class Hops(Record, frozen=True, kw_only=True, tag="hops"):
    """One sampled frame at one agent. (origin, origin_epoch, custody, seq) names the frame.

    Attributes:
        origin: Where it was made.
        origin_epoch: In which incarnation.
        seq: Its number.
        custody: 1 for the numbers of frames under custody, 0 for the others.
        hop: Links travelled; 0 at the origin.
        sender: Over whom it came; null at the origin.
        origin_time_us: The origin's clock when it made the frame.
        qos: As in ``Deliveries``.
    """

    origin: Id
    origin_epoch: Natural
    seq: Natural
    custody: Flag
    hop: Natural
    sender: Id | None = None
    origin_time_us: Natural
    qos: QosLevel


class Clients(Record, frozen=True, kw_only=True, tag="clients"):
    """What test clients measured end to end; written by ``federator grid``, never by agents.

    ``broker`` is the destination here too.

    Attributes:
        publisher_broker: Where they were published.
        destination: Where they were received.
        qos: Of the publications.
        strategy: Of the grid's agents.
        publications: Received.
        expected: That should have been.
        base_us: The smallest delay.
        sum_us: Of all delays.
        min_us: The smallest.
        max_us: The greatest.
        delay: As in ``Deliveries``.
        delays_us: Each delay, in order of arrival, of small runs; otherwise empty.
    """

    publisher_broker: Id
    destination: Id
    qos: QosLevel
    strategy: StrategyName
    publications: Natural
    expected: Natural
    base_us: Signed
    sum_us: Signed
    min_us: Signed
    max_us: Signed
    delay: Buckets
    delays_us: Annotated[tuple[Signed, ...], msgspec.Meta(max_length=DELAYS_MAX)] = ()
