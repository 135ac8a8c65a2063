"""From what the configuration says of a broker to how it is connected to."""

from datetime import UTC, datetime

from federator.config import BrokerSettings, Connection
from federator.runtime.mqtt_endpoint import Endpoint


def endpoint_of(connection: Connection) -> Endpoint:
    """Address, credentials and TLS context; files are read now. Our own broker's socket if it has.

    Raises:
        ValueError: A certificate or key is not usable.
        OSError: A file cannot be read.
    """
    address = connection.address
    socket = connection.socket if isinstance(connection, BrokerSettings) else None
    return Endpoint(
        address.host,
        address.port,
        username=connection.username,
        password=connection.secret(),
        tls=None if socket else connection.tls_context(datetime.now(UTC)),
        socket=socket,
    )
