"""Why a broker could not be reached, in short messages that an operator can act on."""

import errno
import socket
import ssl

from mqtt5 import ConnAckPacket, DisconnectPacket, DisconnectReasonCode
from mqtt5 import ConnAckReasonCode as _Code

from federator.errors import LinkError

_REFUSED = f"[Errno {errno.ECONNREFUSED}]"

# The codec's reason codes are no IntEnum, whatever its stub says: neither hashable nor ordered.
_CONNACK_TEXT = {
    int(_Code.BAD_USER_NAME_OR_PASSWORD): "wrong user name or password",
    # Mosquitto 2.0 also answers a wrong password with this code.
    int(_Code.NOT_AUTHORIZED): "not authorized: wrong user name or password, or no right",
    int(_Code.UNSUPPORTED_PROTOCOL_VERSION): "the broker does not speak MQTT 5",
    int(_Code.CLIENT_ID_NOT_VALID): "the broker does not accept our client id",
}


_CONNACK = 0x20
_DISCONNECT = 0xE0
_HTTP = b"HTTP/"
_OLD_CONNACK_LENGTH = 2  # MQTT 3.1.1; MQTT 5 has at least 3


def check_greeting(chunk: memoryview) -> None:
    """Raise a ``LinkError`` if a connection does not begin as that of an MQTT 5 broker."""
    if bytes(chunk[: len(_HTTP)]) == _HTTP:
        raise LinkError("this is no MQTT broker, but HTTP: for WebSockets use ws:// or wss://")
    if chunk[0] not in (_CONNACK, _DISCONNECT):
        raise LinkError("this is no MQTT broker")
    if chunk[0] == _CONNACK and len(chunk) > 1 and chunk[1] == _OLD_CONNACK_LENGTH:
        raise LinkError("refused: the broker does not speak MQTT 5")


def is_refusal(text: str) -> bool:
    """Whether a text from ``refusal`` or ``explain`` says that one end refuses the connection."""
    return text.startswith(("refused: ", "TLS: "))


def refusal(ack: ConnAckPacket) -> str:
    """The meaning of a CONNACK with an error code."""
    text = _CONNACK_TEXT.get(int(ack.reason_code)) or ack.reason_code.name.lower().replace("_", " ")
    return f"refused: {text}" + (f" ({ack.reason_str})" if ack.reason_str else "")


class NoAnswerError(LinkError):
    """The other end accepted the TCP connection but sent nothing."""


def other_way(error: BaseException | None, *, tls: bool, port: int) -> str:
    """A hint for a connection that ends, or stays silent, before CONNACK; else empty.

    A port with TLS and one without end a connection of the other kind like that.
    """
    kinds = ssl.SSLError, ConnectionResetError, NoAnswerError, type(None)
    if not isinstance(error, kinds) or isinstance(error, ssl.SSLCertVerificationError):
        return ""
    if tls:
        return f": does port {port} speak TLS? without it the URL begins with mqtt://"
    return f": is it an MQTT 5 broker, or does port {port} want TLS (mqtts://)?"


def one_id(username: str) -> str:
    """A hint for a broker that ends one connection of ours when it accepts another."""
    return (
        f"it takes all connections of user {username!r} for one client: set "
        "use_username_as_clientid false on this listener, or give agents a listener of their own"
    )


class TakenOverError(LinkError):
    """Another client connected with our client id."""


def dismissal(packet: DisconnectPacket) -> LinkError:
    """The error that a DISCONNECT from the broker means."""
    if packet.reason_code == DisconnectReasonCode.SESSION_TAKEN_OVER:
        return TakenOverError("session taken over (0x8e): another client has our client id")
    text = packet.reason_code.name.lower().replace("_", " ")
    text = f"the broker disconnected us: {text} (0x{int(packet.reason_code):02x})"
    return LinkError(text + (f": {packet.reason_str}" if packet.reason_str else ""))


def explain(error: BaseException | None, *, host: str, peer: str = "broker") -> str:
    """One short line about the failure of a connection to the ``peer`` at ``host``.

    ``None`` is an orderly end.
    """
    match error:
        case None:
            return f"the {peer} closed the connection"
        case ssl.SSLCertVerificationError():
            return f"TLS: certificate not accepted: {error.verify_message}"
        case ssl.SSLError():
            reason: str = getattr(error, "reason", None) or str(error)
            return f"TLS: {reason.lower().replace('_', ' ')}"
        case socket.gaierror():
            return f"cannot resolve {host!r}: {error.strerror}"
        case ConnectionRefusedError():
            return f"connection refused: is the {peer} running?"
        case ConnectionResetError() | BrokenPipeError():
            return "connection reset"
        case OSError(errno=None) if str(error).count(_REFUSED):  # several addresses were tried
            return f"connection refused: is the {peer} running?"
        case UnicodeError():
            return f"cannot resolve {host!r}: not a host name"
        case OSError():
            return error.strerror or str(error) or type(error).__name__
        case _:
            return str(error) or type(error).__name__
