"""What a client says of itself at the start of each connection: its CONNECT packets.

They are two. The usual one resumes or begins the session that is wanted. The other comes once
before it, over a connection of its own, where a session must be new and must outlast its broker:
see ``session_wipe``.

Sans I/O. Source: OASIS MQTT 5.0, section 3.1.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from mqtt5 import ConnectPacket, Will

from federator.runtime.mqtt_session import RECEIVE_MAX


@dataclass(slots=True, kw_only=True)
class Introduction:
    """Of one client id at one broker, for one connection after another.

    Attributes:
        clean_start: The first connection starts a new session. Later ones resume it when
            ``session_expiry_s`` is positive, and start a new one otherwise.
        session_expiry_s: How long the broker keeps the session after a connection.
        keep_alive_s: After one and a half times this long without a word from us the broker gives
            us up.
        will: Published by the broker when we vanish; a callable is asked for each connection.
        packet_bytes_max: The broker must send nothing longer.
        must_wipe: Before the next connection ``connect_to_wipe`` is to be said on another.
    """

    client_id: str
    username: str | None = None
    password: bytes | None = field(default=None, repr=False)
    clean_start: bool
    session_expiry_s: int
    keep_alive_s: int
    will: Will | Callable[[], Will | None] | None
    packet_bytes_max: int
    must_wipe: bool = field(init=False)

    def __post_init__(self) -> None:
        self.must_wipe = self.clean_start and self.session_expiry_s > 0

    def connect(self) -> bytes:
        """The CONNECT of a connection that stays."""
        return self._packet(
            clean_start=self.clean_start and self.session_expiry_s == 0,
            session_expiry_s=self.session_expiry_s,
            will=self.will() if callable(self.will) else self.will,
        )

    def connect_to_wipe(self) -> bytes:
        """The CONNECT of one that leaves at once: without a Will, and no session is left."""
        return self._packet(clean_start=True, session_expiry_s=0, will=None)

    def _packet(self, *, clean_start: bool, session_expiry_s: int, will: Will | None) -> bytes:
        return ConnectPacket(
            self.client_id,
            username=self.username,
            password=self.password,
            clean_start=clean_start,
            will=will,
            keep_alive=self.keep_alive_s,
            session_expiry_interval=session_expiry_s,
            receive_max=RECEIVE_MAX,
            max_packet_size=self.packet_bytes_max,
        ).write()
