"""Words that are signed one by one: for those with whom their speaker shares no key.

What operators, gateways, collectors and agents say to others than neighbours is JSON. The proof
stands in it as its last field, so that readers of an older release, or without keys, pass over it.
Under the signature are the topic, the message as it was encoded, and what keeps a recorded word
from being said again: a number that grows with every word of its speaker, and where it is an answer
to somebody's start, or for one only, that.

A word that a broker says in our place (a Will) is signed before those that come first. So a word
is (since, number): ``since`` when its speaker connected, and a Will has the greatest number of its
connection.

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
"""Whom a word is for that is for everybody."""

LATE_MAX_US: Final = 600_000_000
"""How old, or early, a word may be whose age counts: clocks of hosts differ."""

SPEAKERS_MAX: Final = 4_096
_WILL: Final = 2**64 - 1
_HEADER = struct.Struct(">QQ16s")
_FIELD: Final = b',"proof":"'


def at(broker: BrokerId) -> bytes:
    return b"at" + broker.to_bytes(14)


def is_signed(payload: bytes) -> bool:
    """Whether a word bears a proof, good or not: who asks with one is answered with one."""
    return _FIELD in payload


class Wanted(NamedTuple):
    """What a word must be to be believed."""

    role: Role  # what its speaker is,
    name: str = ""  # and who; empty: anybody in that role
    to: bytes = NOBODY  # whom it is for
    # Where it was heard, as copies of one word may come by several brokers; or which of its
    # speaker's runs, where several have one key, it names as its own.
    place: int | str = 0
    ages: bool = False  # it is said as it happens, so an old one was recorded
    stays: bool = False  # it is retained: the newest may come again


class WordSigner:
    """Signs the words of one speaker."""

    def __init__(self, vouch: Callable[[bytes], bytes], now_us: Callable[[], int]) -> None:
        self._vouch = vouch  # signs a text, and returns the signature with our certificate
        self._now_us = now_us  # Unix time; numbers grow even while it goes back
        self._number = 0
        self._since = now_us()

    def sign(self, topic: str, body: bytes, *, to: bytes = NOBODY, is_will: bool = False) -> bytes:
        """Return the JSON object ``body`` with our proof, for whoever hears ``topic``.

        A Will, made for each connection, ends all that we say from now until the next one.
        """
        self._number = max(self._number + 1, self._now_us())
        if is_will:
            self._since = self._number
        header = _HEADER.pack(self._since, _WILL if is_will else self._number, to)
        proof = b64encode(header + self._vouch(_signed_text(topic, header, body)))
        return body[:-1] + _FIELD + proof + b'"}'


class WordJudge:
    """Judges what others say.

    Words of roles in ``required`` must be proven. Others may be without a proof, until their
    speaker has shown one.
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
        # By role: who speaks in many runs has nothing of other roles forgotten.
        self._newest: dict[Role, Recent[tuple[str, int | str, str], tuple[int, int]]]
        self._newest = {each: Recent(SPEAKERS_MAX) for each in get_args(Role)}
        self._proven: set[tuple[Role, str]] = set()

    def check(self, topic: str, payload: bytes, wanted: Wanted) -> None:
        """Accept the word ``payload``, which was said on ``topic``.

        Raises:
            DecodeError: It is not to be believed.
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
        who = certificate.holder
        if name and certificate.holder_name != name:
            raise DistrustError(f"{who} speaks in the name of {name}")
        if addressee != to:
            raise DistrustError(f"a word of {who} is for another, or for an earlier start")
        if ages and abs(now_us - number) > LATE_MAX_US:
            raise DistrustError(f"a word of {who} is old: see the clocks of both hosts")
        said = (who, place, topic)
        newest = self._newest[role].get(said, (0, 0))
        if (since, number) < newest or ((since, number) == newest and not stays):
            raise DistrustError(f"a word of {who} came before")
        text = _signed_text(topic, data[: _HEADER.size], body + b"}")
        if not self._verify(certificate.signing_key, signed.signature, text):
            raise DistrustError(f"the signature on a word of {who} is wrong")
        self._newest[role].put(said, (since, number))
        self._proven.add((role, name))


def _signed_text(topic: str, header: bytes, body: bytes) -> bytes:
    return b"federator word 1\0" + topic.encode() + b"\0" + header + body
