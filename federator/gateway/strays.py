"""Publications whose client is gone and whose broker died: the gateway publishes them itself."""

from collections.abc import Iterable, Sequence

import structlog

from federator.gateway.brokers import Broker
from federator.gateway.journal import Publication
from federator.gateway.wire import V5, Property, only, publish_id, without, write_publish

_log = structlog.get_logger()


def republish(publications: Iterable[Publication], brokers: Sequence[Broker]) -> None:
    """Publish on the first broker that takes them, by our own connection there."""
    lost = 0
    for publication in publications:
        packet = write_publish(
            publication.topic.decode(),
            publication.payload,
            version=V5,
            qos=publication.qos,
            retain=publication.retain,
            packet_id=1,
            properties=without(publication.properties, Property.TOPIC_ALIAS),
        )
        _, id_at = publish_id(packet, only(packet))
        if not any(
            broker.link.publish_packet(bytearray(packet), id_at, publication.qos)
            for broker in brokers
        ):
            lost += 1
    if lost:
        _log.error("gateway.publications_lost", publications=lost)
