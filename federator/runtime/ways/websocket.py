"""MQTT in WebSockets, without a socket: bytes to send become frames, frames become bytes.

Frames and packets end independently, so received bytes are passed on as they come: a frame of any
length, in any number of fragments, is never kept whole. Compression is not offered.

Source: RFC 6455; OASIS MQTT 5.0, section 6.
"""

from enum import Enum
from itertools import islice
from typing import Final

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import RemoteProtocolError

from federator.errors import LinkError

SUBPROTOCOL: Final = "mqtt"
FRAME_BYTES_MAX: Final = 65_536
"""Bound of the bytes we send in a frame: servers, and proxies before them, bound it."""

FRAMES_PER_TURN_MAX: Final = 1_024
"""Frames that one turn of the loop decodes, however short they are."""

REASON_CHARACTERS_MAX: Final = 120

_ORDERLY: Final = (CloseReason.NORMAL_CLOSURE, CloseReason.GOING_AWAY, CloseReason.NO_STATUS_RCVD)


class Stage(Enum):
    """The state of a connection."""

    OPENING = "the broker has not answered"
    OPEN = "bytes go both ways"
    CLOSED = "the broker has closed"


class WebSocket:
    """Our end of one WebSocket.

    Attributes:
        stage: The state of the connection.
        ping: The payload of the last unanswered ping.
        reason: Why the broker closed, in words; ``None`` without one.
    """

    def __init__(self, host: str, port: int | None, path: str) -> None:
        """``port``: unless it is that of the scheme."""
        self._connection = WSConnection(ConnectionType.CLIENT)
        name = f"[{host}]" if ":" in host else host
        self._host = name if port is None else f"{name}:{port}"
        self._path = path
        self.stage = Stage.OPENING
        self.ping: bytes | bytearray | None = None
        self.reason: str | None = None

    def request(self) -> bytes:
        """The opening request. Raises ``UnicodeError``: the host is not a valid host name."""
        opening = Request(host=self._host, target=self._path, subprotocols=[SUBPROTOCOL])
        return self._connection.send(opening)

    def receive(self, data: bytes) -> None:
        """Buffer received bytes; ``take`` decodes them.

        Raises:
            LinkError: The answer to our request is not valid.
        """
        try:
            self._connection.receive_data(data)
        except (RemoteProtocolError, UnicodeError) as error:
            raise LinkError(f"no WebSocket answers at {self._path!r}: {_short(error)}") from error

    def take(self) -> tuple[bytearray, bool]:
        """The bytes of the next frames, and whether there may be more.

        Raises:
            LinkError: A frame that a broker must not send.
        """
        taken = bytearray()
        events = list(islice(self._connection.events(), FRAMES_PER_TURN_MAX))
        for event in events:
            if type(event) is BytesMessage:
                taken += event.data
            else:
                self._on_event(event)
        return taken, len(events) == FRAMES_PER_TURN_MAX

    def _on_event(self, event: Event) -> None:
        match event:
            case AcceptConnection():
                if event.subprotocol != SUBPROTOCOL:
                    raise LinkError(f"refused: the WebSocket at {self._path!r} is none for MQTT")
                self.stage = Stage.OPEN
            case RejectConnection():
                raise LinkError(f"refused: HTTP {event.status_code} for {self._path!r}")
            case Ping():
                self.ping = event.payload
            case Pong():
                pass
            case TextMessage():
                raise LinkError("a WebSocket frame of text, only binary ones wanted")
            case CloseConnection():
                self._on_close(event)
            case _:
                raise LinkError("no WebSocket")

    def _on_close(self, event: CloseConnection) -> None:
        # The library closed on an error.
        if self._connection.state is not ConnectionState.REMOTE_CLOSING:
            raise LinkError(f"malformed WebSocket frame: {_short(event.reason)}")
        self.stage = Stage.CLOSED
        if event.code not in _ORDERLY or event.reason:
            reason = f": {_short(event.reason)}" if event.reason else ""
            self.reason = f"the broker closed the WebSocket ({int(event.code)}){reason}"

    def frames(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """``data`` as masked frames."""
        send, size = self._connection.send, len(data)
        if size <= FRAME_BYTES_MAX:
            return [send(BytesMessage(data=bytes(data)))]
        pieces = (data[at : at + FRAME_BYTES_MAX] for at in range(0, size, FRAME_BYTES_MAX))
        return [send(BytesMessage(data=bytes(piece))) for piece in pieces]

    def pong(self) -> bytes:
        """The answer to the last ping only, as the RFC allows."""
        answered, self.ping = self.ping, None
        assert answered is not None
        return self._connection.send(Pong(payload=bytes(answered)))

    def close(self) -> bytes:
        """The frame that ends the connection, or answers its end."""
        return self._connection.send(CloseConnection(code=CloseReason.NORMAL_CLOSURE))


def _short(text: object) -> str:
    """``text`` as one printable line."""
    shown = "".join(character if character.isprintable() else "?" for character in str(text))
    return shown[:REASON_CHARACTERS_MAX]
