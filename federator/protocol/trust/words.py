"""Messages that are signed one by one, for receivers that share no key with the sender.

Operators, gateways, collectors and agents send JSON to parties other than neighbours. The proof is
its last field, so that readers of an older release, or without keys, skip it. The signature covers
the topic, the message as encoded, and what prevents a replay: a number that grows with every
message of the sender, and for an answer to one start, or for one receiver, that start or receiver.

A message that a broker publishes for us (a Will) is signed before those that come first. So a
message is numbered (since, number): ``since`` is when its sender connected, and a Will has the
greatest number of its connection.

Source: docs/security.md, "Roles".
"""

import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, get_args

from federator.errors import DecodeError
from federator.protocol.bounded_cache import Recent
from federator.protocol.trust.authority import Authority, DistrustError
from federator.protocol.trust.certificates import Role
from federator.protocol.trust.primitives import Verifier
from federator.protocol.trust.proofs import decode_proof
from federator.protocol.types import BrokerId

NOBODY: Final = bytes(16)
"""The receiver field of a message that is for all."""

LATE_MAX_US: Final = 600_000_000
"""How old, or early, a message may be if its age counts: clocks of hosts differ."""

SPEAKERS_MAX: Final = 4_096
_WILL: Final = 2**64 - 1
_HEADER = struct.Struct(">QQ16s")
_FIELD: Final = b',"proof":"'


def at(broker: BrokerId) -> bytes:
    return b"at" + broker.to_bytes(14)


def is_signed(payload: bytes) -> bool:
    """Whether a message has a proof, valid or not: a signed request gets a signed answer."""
    return _FIELD in payload


class Wanted(NamedTuple):
    """What a message must prove to be accepted."""

    role: Role  # the sender's role,
    name: str = ""  # and name; empty: any name in that role
    to: bytes = NOBODY  # the receiver
    # The broker where it was received, as copies of one message may come by several brokers; or
    # which of several processes with one key the sender claims to be.
    place: int | str = 0
    ages: bool = False  # sent at the time of the event, so an old one is a replay
    stays: bool = False  # retained: the newest may come again


class WordSigner:
    """Signs the messages of one sender."""

    def __init__(self, vouch: Callable[[bytes], bytes], now_us: Callable[[], int]) -> None:
        self._vouch = vouch  # signs a text, and returns the signature with our certificate
        self._now_us = now_us  # Unix time; numbers grow even while it goes back
        self._number = 0
        self._since = now_us()

    def sign(self, topic: str, body: bytes, *, to: bytes = NOBODY, is_will: bool = False) -> bytes:
        """Return the JSON object ``body`` with our proof, for all receivers of ``topic``.

        A Will, made for each connection, follows all that we send from now until the next one.
        """
        self._number = max(self._number + 1, self._now_us())
        if is_will:
            self._since = self._number
        header = _HEADER.pack(self._since, _WILL if is_will else self._number, to)
        proof = b64encode(header + self._vouch(_signed_text(topic, header, body)))
        return body[:-1] + _FIELD + proof + b'"}'


class WordJudge:
    """Verifies messages of others.

    Messages of roles in ``required`` must be signed. Others may be unsigned, until their sender has
    signed one.
    """

    def __init__(
        self,
        authority: Authority,
        verify: Verifier,
        now_us: Callable[[], int],
        required: Iterable[Role],
    ) -> None:
        self._authority = authority
        self._verify = verify
        self._now_us = now_us
        self._required = frozenset(required)
        # By role: a role with very many senders does not push out those of other roles.
        self._newest: dict[Role, Recent[tuple[str, int | str, str], tuple[int, int]]]
        self._newest = {role: Recent(SPEAKERS_MAX) for role in get_args(Role)}
        self._proven: set[tuple[Role, str]] = set()

    def check(self, topic: str, payload: bytes, wanted: Wanted) -> None:
        """Accept the message ``payload``, received on ``topic``.

        Raises:
            DecodeError: It cannot be authenticated.
        """
        role, name, to, place, ages, stays = wanted
        body, bar, proof = payload.rpartition(_FIELD)
        if not bar:
            if role in self._required or (role, name) in self._proven:
                raise DistrustError(f"a word of {role} {name} without its signature")
            return
        try:
            if not proof.endswith(b'"}'):
                raise DecodeError("proof: it is not the last field")
            data = b64decode(proof[:-2], validate=True)
            since, number, addressee = _HEADER.unpack_from(data)
        except (ValueError, struct.error) as error:
            raise DecodeError(f"proof: {error}") from error
        signed = decode_proof(data[_HEADER.size :])
        now_us = self._now_us()
        certificate = self._authority.judge(
            signed.certificate, now_s=now_us // 1_000_000, role=role
        )
        holder = certificate.holder
        if name and certificate.holder_name != name:
            raise DistrustError(f"{holder} speaks in the name of {name}")
        if addressee != to:
            raise DistrustError(f"a word of {holder} is for another, or for an earlier start")
        if ages and abs(now_us - number) > LATE_MAX_US:
            raise DistrustError(f"a word of {holder} is old: see the clocks of both hosts")
        source = (holder, place, topic)
        newest = self._newest[role].get(source, (0, 0))
        if (since, number) < newest or ((since, number) == newest and not stays):
            raise DistrustError(f"a word of {holder} came before")
        text = _signed_text(topic, data[: _HEADER.size], body + b"}")
        if not self._verify(certificate.signing_key, signed.signature, text):
            raise DistrustError(f"the signature on a word of {holder} is wrong")
        self._newest[role].put(source, (since, number))
        self._proven.add((role, name))


def _signed_text(topic: str, header: bytes, body: bytes) -> bytes:
    return b"federator word 1\0" + topic.encode() + b"\0" + header + body
