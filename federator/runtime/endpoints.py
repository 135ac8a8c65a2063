"""From what the configuration says of a broker to how it is connected to."""

from datetime import UTC, datetime

from federator.config import Connection
from federator.runtime.mqtt_link import Endpoint


def endpoint_of(connection: Connection) -> Endpoint:
    """Address, credentials and TLS context; files are read now.

    Raises:
        ValueError: A certificate or key is not usable.
        OSError: A file cannot be read.
    """
    address = connection.address
    return Endpoint(
        address.host,
        address.port,
        username=connection.username,
        password=connection.secret(),
        tls=connection.tls_context(datetime.now(UTC)),
    )
