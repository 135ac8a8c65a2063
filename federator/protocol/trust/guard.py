"""Signs and seals an agent's outgoing messages, and verifies incoming ones.

A greeting must carry a valid certificate; every other message must carry the seal of a neighbour
that has greeted us, and name the same sender inside. All others are dropped before any part of the
protocol has seen them, the duplicate window included.

On the wire a greeting begins with ``S``, a seal with ``M`` (readable) or ``C`` (encrypted), then
key name, sender, number, tag. The seal covers the topic's last level, so a message cannot be
replayed on another topic.

Source: docs/security.md, "Seals".
"""

import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from federator.errors import DecodeError
from federator.protocol.messages import control as c
from federator.protocol.messages.codec import HELLO, decode
from federator.protocol.trust.authority import Authority, DistrustError
from federator.protocol.trust.greetings import (
    MARK,
    Greeting,
    encode_greeting,
    pack,
    signed_text,
    unpack,
)
from federator.protocol.trust.peers import Peer, agreement_half
from federator.protocol.trust.primitives import TAG_BYTES, Identity, Verifier
from federator.protocol.trust.proofs import ProofJudge, address_text, decode_proof, facts_of, prove
from federator.protocol.types import BrokerId, Epoch

CONTROL, DATA, DATAGRAM, DIRECT = 0, 1, 2, 3
"""Channels: a neighbour numbers all its seals in one sequence, and each channel records the numbers
received; except the last channel, where a seal covers its position on a connection
(``sealed_connection``)."""

_READABLE, _ENCRYPTED = ord("M"), ord("C")
_MARKS: Final = (b"M", b"C")
_HEADER = struct.Struct(">B4sIQ")
_NONCE = struct.Struct(">IQ")
HEADER_BYTES: Final = _HEADER.size
SEAL_BYTES: Final = HEADER_BYTES + TAG_BYTES


def overheard(payload: bytes) -> tuple[str, bytes | None]:
    """What a party without a key can read of a payload.

    Returns:
        ``"signed"`` or ``"sealed"``, ``"open"`` when there is no seal; and the body, ``None`` when
        it is encrypted.

    Raises:
        DecodeError: The payload begins as a greeting or a seal but is none.
    """
    if payload[:1] == MARK:
        greeting, _, _ = unpack(payload)
        return Manner.SIGNED, greeting.body
    if payload[:1] not in _MARKS:
        return "open", payload
    if len(payload) < SEAL_BYTES:
        raise DecodeError(f"seal: {len(payload)} bytes, at least {SEAL_BYTES} wanted")
    if payload[0] == _ENCRYPTED:
        return Manner.SEALED, None
    return Manner.SIGNED, payload[SEAL_BYTES:]


def overheard_hello(payload: bytes) -> c.Hello | None:
    """The hello in ``payload``, readable without a key and not verified; ``None`` if none."""
    try:
        _, body = overheard(payload)
        message = None if body is None else decode(HELLO, body)
    except DecodeError:
        return None
    return message if isinstance(message, c.Hello) else None


class Manner(StrEnum):
    """How much a seal protects."""

    SIGNED = "signed"  # the broker in between can read, but not change it
    SEALED = "sealed"  # nor read it


class Guard:
    """Seals, and opens seals, for one agent. ``salt`` must be drawn for this start."""

    def __init__(
        self,
        *,
        federation: str,
        authority: Authority,
        verify: Verifier,
        identity: Identity,
        certificate: bytes,
        salt: bytes,
        manner: Manner,
        now_s: Callable[[], int],
    ) -> None:
        self.authority = authority
        self._federation = federation
        self._verify = verify
        self._identity = identity
        self._now_s = now_s  # Unix time, for certificates
        self._encrypts = manner is Manner.SEALED  # what we send; we open both
        self._proofs = ProofJudge(federation, authority, verify)
        # Our own half of the key agreement.
        self.ours = agreement_half(certificate, authority.judge(certificate, now_s=now_s()), salt)
        self._peers: OrderedDict[BrokerId, Peer] = OrderedDict()
        self._epochs: dict[BrokerId, Epoch] = {}
        self._greeted = 0
        # One sequence for all neighbours: one that we forgot and meet again sees no number twice.
        self._sealed = 0

    def renew(self, identity: Identity, certificate: bytes, *, trusted: Iterable[bytes]) -> None:
        """Continue with another certificate. Neighbours follow with their next greeting.

        Raises:
            DecodeError: The certificate is not valid under these keys, or is another broker's.
                Nothing changed.
        """
        trusted = frozenset(trusted)
        renewed = self.authority.trusting(trusted).judge(certificate, now_s=self._now_s())
        if renewed.id != self.ours.certificate.id:
            raise DistrustError(f"the new certificate is of broker {renewed.id}")
        self.authority.retrust(trusted)
        self._identity = identity
        self.ours = agreement_half(certificate, renewed, self.ours.salt)
        for peer in self._peers.values():
            peer.learn(self.ours, identity, self._federation)

    # -- addresses --------------------------------------------------------------------------------

    def prove_address(self, address: str, epoch: Epoch) -> bytes:
        """Our signature on our own address, for all brokers that receive it."""
        return self.vouch(address_text(self._federation, self.ours.certificate.id, epoch, address))

    def check_address(self, id: BrokerId, epoch: Epoch, address: str, proof: bytes) -> None:
        """Accept a forwarded address of ``id``.

        Raises:
            DecodeError: That broker did not sign it.
        """
        self._proofs.check_address(id, epoch, address, proof, now_s=self._now_s())

    def check_frame(self, origin: BrokerId, text: bytes, proof: bytes) -> None:
        """Accept the part of a frame that ``origin`` signed.

        Raises:
            DecodeError: The origin did not sign it.
        """
        self._proofs.check_frame(origin, text, proof, now_s=self._now_s())

    # -- signed texts -----------------------------------------------------------------------------

    def vouch(self, text: bytes) -> bytes:
        """Our signature on ``text``, with our certificate."""
        return prove(text, self.ours.data, self._identity)

    def vouched(self, id: BrokerId, text: bytes, proof: bytes) -> bool:
        """Whether broker ``id`` signed ``text``."""
        try:
            read = decode_proof(proof)
            certificate = self.authority.judge(read.certificate, now_s=self._now_s())
        except DecodeError:
            return False
        whose = certificate.id == id
        return whose and self._verify(certificate.signing_key, read.signature, text)

    # -- control messages -------------------------------------------------------------------------

    def prove(self, message: c.Message) -> c.Message:
        """Return ``message``, with our signature if it is our own core announcement."""
        if isinstance(message, c.CoreAnn) and message.core == self.ours.certificate.id:
            proof = self.vouch(facts_of(self._federation, message))
            return msgspec.structs.replace(message, proof=proof)
        return message

    def greet(self, kind: str, body: bytes, to: BrokerId | None, *, will: bool = False) -> bytes:
        """The wire form of a hello or a bye for ``to``, if the receiver is known.

        ``will``: a broker stores it and may publish it later.
        """
        self._greeted += 0 if will else 1
        greeting = Greeting(
            version=1,
            certificate=self.ours.data,
            salt=self.ours.salt,
            counter=0 if will else self._greeted,
            to=to,
            holds={} if will else {id_: peer.agreement.name for id_, peer in self._peers.items()},
            kind=kind,
            body=body,
        )
        text = encode_greeting(greeting)
        return pack(text, self._identity.sign(signed_text(self._federation, text)))

    def seal(self, channel: int, kind: str, body: bytes, to: BrokerId) -> bytes | None:
        """Return ``body`` sealed for the neighbour ``to``; ``None`` before the handshake.

        ``kind`` is the topic's last level.
        """
        peer = self._peers.get(to)
        keys = peer.keys_to(self.ours, self._identity, self._federation) if peer else None
        if peer is None or keys is None:
            return None
        self._sealed += 1
        mark = _ENCRYPTED if self._encrypts else _READABLE
        header = _HEADER.pack(mark, keys.name, self.ours.certificate.id, self._sealed)
        nonce = _NONCE.pack(channel, self._sealed)
        about = header + kind.encode()
        if self._encrypts:
            return header + keys.ours.encrypt(nonce, body, about)
        # Readable: body and header are authenticated, and only a tag is made.
        return header + keys.ours.encrypt(nonce, b"", about + body) + body

    def unseal(self, channel: int, kind: str, payload: bytes) -> tuple[BrokerId, bytes]:
        """Open a seal: return the sender and the body of ``payload``.

        Raises:
            DecodeError: There is no seal of a neighbour after a handshake, or it is a replay.
        """
        if payload[:1] not in _MARKS:
            raise DistrustError("without a seal: an agent that is not in signed mode, or a client")
        if len(payload) < SEAL_BYTES:
            raise DecodeError(f"seal: {len(payload)} bytes, at least {SEAL_BYTES} wanted")
        mark, name, sender, number = _HEADER.unpack_from(payload)
        peer = self._peers.get(BrokerId(sender))
        keys = peer.understood(name) if peer is not None else None
        if peer is None or keys is None:
            raise DistrustError(f"sealed by {sender} under a key we do not hold")
        nonce = _NONCE.pack(channel, number)
        about = payload[:HEADER_BYTES] + kind.encode()
        if mark == _READABLE:
            tag, body = payload[HEADER_BYTES:SEAL_BYTES], payload[SEAL_BYTES:]
            whole = keys.theirs.decrypt(nonce, tag, about + body) is not None
        else:
            opened = keys.theirs.decrypt(nonce, payload[HEADER_BYTES:], about)
            whole, body = opened is not None, opened or b""
        if not whole:
            raise DistrustError(f"the seal of {sender} is broken")
        if channel != DIRECT and not peer.admit(channel, number):
            raise DistrustError(f"number {number} of {sender} came before")
        return BrokerId(sender), body

    def read(self, kind: str, payload: bytes) -> tuple[BrokerId, bytes, Greeting | None]:
        """Return sender and encoding of a control message, and its greeting, if there is one.

        Call ``admit`` with the decoded message afterwards.

        Raises:
            DecodeError: The message cannot be authenticated.
        """
        if payload[:1] != MARK:
            sender, body = self.unseal(CONTROL, kind, payload)
            return sender, body, None
        greeting, text, signature = unpack(payload)
        certificate = self.authority.judge(greeting.certificate, now_s=self._now_s())
        subject = f"a greeting of {certificate.id}"
        if greeting.kind != kind:
            raise DistrustError(f"{subject} for topic {greeting.kind[:20]!r} on topic {kind!r}")
        if greeting.to not in (None, self.ours.certificate.id):
            raise DistrustError(f"{subject} is for {greeting.to}")
        expected = signed_text(self._federation, text)
        if not self._verify(certificate.signing_key, signature, expected):
            raise DistrustError(f"the signature on {subject} is wrong")
        return certificate.id, greeting.body, greeting

    def admit(
        self,
        sender: BrokerId,
        message: c.Message,
        greeting: Greeting | None,
        has_namesake: Callable[[c.Hello], bool],
    ) -> None:
        """Accept a decoded message that ``read`` returned; complete the handshake for a hello.

        No handshake with an agent whose id another linked agent has: that one's keys stay.

        Raises:
            DecodeError: The message names another sender, or is of a kind that must be sealed.
        """
        named = c.sender_of(message)
        if named != sender:
            raise DistrustError(f"{sender} speaks in the name of {named}")
        if greeting is None:
            if isinstance(message, c.Hello):
                raise DistrustError(f"a hello of {sender} that is no greeting")
            if isinstance(message, c.CoreAnn):
                self._proofs.check_announcement(message, now_s=self._now_s())
            elif isinstance(message, c.Solicit) and message.shown is not None:
                self._proofs.check_announcement(message.shown, now_s=self._now_s())
        elif isinstance(message, c.Hello):
            if not has_namesake(message):
                self._shake_hands(sender, message.epoch, greeting)
        elif isinstance(message, c.Bye):
            self._part(sender, message, greeting)
        else:
            raise DistrustError(f"a {type(message).__name__} of {sender} without a seal")

    def _part(self, sender: BrokerId, bye: c.Bye, greeting: Greeting) -> None:
        """Accept a bye only once: it may be a replay."""
        peer = self._peers.get(sender)
        if peer is None or greeting.salt != peer.agreement.salt:
            return  # from another start: the links judge it by its epoch
        if greeting.counter:
            if greeting.counter <= peer.counter:
                raise DistrustError(f"bye {greeting.counter} of {sender} came before")
            peer.counter = greeting.counter
        elif bye.conn <= peer.willed:  # signed at connect time: it has no counter
            raise DistrustError(f"the Will of connection {bye.conn} of {sender} came before")
        else:
            peer.willed = bye.conn

    def _shake_hands(self, sender: BrokerId, epoch: Epoch, greeting: Greeting) -> None:
        certificate = self.authority.judge(greeting.certificate, now_s=self._now_s())
        peer = self._peers.get(sender)
        if peer is not None and epoch < self._epochs[sender]:
            # From an earlier start, or replayed: the links judge it by its epoch; keys stay.
            return
        if peer is not None and greeting.salt == peer.agreement.salt:
            if greeting.counter <= peer.counter:
                raise DistrustError(f"greeting {greeting.counter} of {sender} came before")
        elif peer is not None and epoch == self._epochs[sender]:
            # A restart draws another salt and a greater epoch, so this is another agent.
            raise DistrustError(f"two agents speak as {sender}, in the same epoch")
        else:
            peer = None  # the neighbour restarted: its numbers start anew
        if peer is None:
            peer = Peer(agreement_half(greeting.certificate, certificate, greeting.salt))
            self._peers[sender] = peer
        elif peer.agreement.data != greeting.certificate:
            peer.agreement = agreement_half(greeting.certificate, certificate, greeting.salt)
        peer.counter = greeting.counter
        peer.holds = greeting.holds.get(self.ours.certificate.id, b"")
        self._epochs[sender] = epoch
        self._peers.move_to_end(sender)
        peer.learn(self.ours, self._identity, self._federation)
        while len(self._peers) > c.NEIGHBOURS_MAX:
            del self._epochs[self._peers.popitem(last=False)[0]]

    def forget_distrusted(self) -> list[BrokerId]:
        """Forget neighbours with expired or revoked certificates; return them."""
        gone: list[BrokerId] = []
        for id_, peer in list(self._peers.items()):
            try:
                self.authority.judge(peer.agreement.data, now_s=self._now_s())
            except DecodeError:
                gone.append(id_)
                del self._peers[id_], self._epochs[id_]
        return gone


def claimed_sender(payload: bytes) -> BrokerId | None:
    """The sender that the seal of ``payload`` names, unverified; ``None``: there is no seal."""
    if payload[:1] not in _MARKS or len(payload) < HEADER_BYTES:
        return None
    return BrokerId(_HEADER.unpack_from(payload)[2])


class Seals(Protocol):
    """Seals frames, and opens those of others."""

    @property
    def guard(self) -> Guard:
        """Has the neighbours' keys."""

    @property
    def proves(self) -> bool:
        """Whether frames under custody are proven: ours, and those that we accept."""

    def open_frame(self, payload: bytes) -> tuple[BrokerId, bytes] | None:
        """The agent that sealed a frame, and the frame; ``None`` when it was refused."""
