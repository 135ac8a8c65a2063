"""Lines back to records: every table by its name, every field in its range.

Source: docs/metrics.md, "Every record".
"""

from typing import Final

import msgspec

from federator.errors import DecodeError
from federator.protocol.metric_records.envelope import Record
from federator.protocol.metric_records.happenings import Clients, Events, Hops
from federator.protocol.metric_records.state import Agents, Announcements, Control, Links
from federator.protocol.metric_records.traffic import Arrived, Deliveries, Offered

AnyRecord = (
    Deliveries
    | Offered
    | Arrived
    | Links
    | Control
    | Announcements
    | Agents
    | Events
    | Hops
    | Clients
)

TABLES: Final[dict[str, type[Record]]] = {
    "deliveries": Deliveries,
    "offered": Offered,
    "arrived": Arrived,
    "links": Links,
    "control": Control,
    "announcements": Announcements,
    "agents": Agents,
    "events": Events,
    "hops": Hops,
    "clients": Clients,
}
"""By the name that stands in a record's ``table``."""

LINE_BYTES_MAX: Final = 1_048_576

_decoder: Final[msgspec.json.Decoder[AnyRecord]] = msgspec.json.Decoder(AnyRecord)


def decode(line: bytes) -> AnyRecord:
    """The record that ``line`` says. Fields that this version does not know are passed over.

    Raises:
        DecodeError: When it is no record of this version.
    """
    if len(line) > LINE_BYTES_MAX:
        raise DecodeError(f"record: {len(line)} bytes, at most {LINE_BYTES_MAX} wanted")
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"record: {error}") from error
