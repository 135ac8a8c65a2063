"""A member of the federation with a valid key that turns bad: what it says is sealed and believed.

It keeps a live link with one honest agent as the protocol asks for, and otherwise does what a test
makes it do. Its own broker is only where its neighbour speaks to it.
"""

import asyncio
import contextlib
import os
import time

from federator.errors import DecodeError
from federator.protocol.forwarding.frames import Frame, pack, unpack
from federator.protocol.messages.codec import decode, encode, kind_of
from federator.protocol.messages.control import HeardNeighbour, Hello
from federator.protocol.trust.authority import Authority
from federator.protocol.trust.guard import CONTROL, DATA, SEAL_BYTES, Guard, Manner
from federator.protocol.trust.key_files import AgentKeys, FederationPublic, read_key_file
from federator.runtime.trust.crypto import SecretIdentity, verify
from tests.real.client import Client
from tests.real.flow import running
from tests.real.plain_agents import eventually

HELLO_S = 0.5


def _now_ms():
    return int(time.monotonic() * 1_000)


class Ears(Client):
    """What a client hears on one broker.

    Attributes:
        heard: (topic's last level, payload), the latest last.
    """

    def __init__(self, port, client_id, *kinds, federation="fed"):
        super().__init__(port, client_id, *(f"$fed/{federation}/{kind}" for kind in kinds), qos=0)
        self.heard = []

    def on_publishes(self, link, chunk, publishes):
        for packet, _, _ in publishes:
            self.on_message(packet.topic.rsplit("/", 1)[-1], bytes(packet.payload))

    def on_message(self, kind, payload):
        self.heard.append((kind, payload))

    def frames(self, wanted):
        """Readable frames for which ``wanted`` holds."""
        found = []
        for kind, payload in self.heard:
            if kind == "data":
                with contextlib.suppress(DecodeError):  # of tests that send what is no frame
                    found.append(unpack(payload[SEAL_BYTES:]))
        return [frame for frame in found if wanted(frame)]


class Member(Ears):
    """Broker ``id``'s agent, as far as its one neighbour can tell.

    Args:
        id: Its own.
        office: Where its keys are.
        own: The broker beside it.
        victim: The broker of its neighbour.
        neighbour: That one's id.
        federation: Theirs, and
        issued_in: that of their certificates, where it is another one.
        login: There.
    """

    def __init__(
        self, id, office, *, own, victim, neighbour, federation="fed", issued_in=None, login=()
    ):
        super().__init__(own.port, f"federator-{id}-ctl", "#", federation=federation)
        office.section(id)
        keys = read_key_file((office.folder / f"agent-{id}.key").read_bytes(), AgentKeys)
        public = read_key_file((office.folder / "federation.pub").read_bytes(), FederationPublic)
        self.id = id
        self.neighbour = neighbour
        self.epoch = int(time.time() * 1_000)
        self.guard = Guard(
            federation=federation,
            authority=Authority(issued_in or federation, [public.key], verify),
            verify=verify,
            identity=SecretIdentity(keys.signing, keys.exchange),
            certificate=keys.certificate,
            salt=os.urandom(16),
            manner=Manner.SIGNED,
            now_s=lambda: int(time.time()),
        )
        self.mouth = Client(victim.port, f"federator-{id}-to", login=login)
        self._topics = f"$fed/{federation}"
        self._address = own.url
        self._hello = None

    def on_message(self, kind, payload):
        super().on_message(kind, payload)
        if kind != "hello":
            return
        with contextlib.suppress(DecodeError):
            sender, body, greeting = self.guard.read(kind, payload)
            hello = decode(kind, body)
            self.guard.admit(sender, hello, greeting, lambda hello: False)
            news = self._hello is None or self._hello.conn != hello.conn
            self._hello = hello
            if news:
                self.greet()

    def greet(self):
        """Say hello as an agent would."""
        hears = ()
        if self._hello is not None:
            h = self._hello
            hears = (HeardNeighbour(h.sender, h.epoch, h.conn, h.sent_at_ms, 0, 1),)
        hello = Hello(1, self.id, self.epoch, 1, _now_ms(), self._address, hears)
        greeting = self.guard.greet("hello", encode(hello), self.neighbour)
        self.mouth.link.publish(f"{self._topics}/hello", greeting)

    async def run(self):
        while True:
            self.greet()
            await asyncio.sleep(HELLO_S)

    def say(self, message):
        """Send a control message, whatever it says."""
        kind = kind_of(message)
        sealed = self.guard.seal(CONTROL, kind, encode(message), self.neighbour)
        assert sealed is not None, "the neighbour has not shaken hands"
        return self.mouth.link.publish(f"{self._topics}/{kind}", sealed)

    def send(self, frame):
        """Send a frame, whoever's it says it is."""
        sealed = self.guard.seal(DATA, "data", pack(frame), self.neighbour)
        assert sealed is not None, "the neighbour has not shaken hands"
        return self.mouth.link.publish(f"{self._topics}/data", sealed)

    def forged(self, real, **changes):
        """``real``, a frame that was overheard, with ``changes`` and we as its sender."""
        body = changes.pop("body", bytes(real.body))
        fields = {name: getattr(real, name) for name in Frame.__struct_fields__}
        fields |= {"sender": self.id, "hops": 0, "body": memoryview(body), **changes}
        return Frame(**fields)


@contextlib.asynccontextmanager
async def linked_member(member, agent):
    """``member`` with a live link to ``agent``, its neighbour."""
    async with running(member, member.mouth):
        greeting = asyncio.create_task(member.run())
        try:
            await eventually(
                agent,
                lambda status: any(
                    (link["neighbour"], link["state"]) == (member.id, "up")
                    for link in status["links"]
                ),
                "the member is a neighbour",
            )
            yield
        finally:
            greeting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await greeting
