"""Detects another agent at our own broker: two would import everything twice.

Neighbours only publish on our broker; a client that subscribes to the federation's topics there is
an agent of this broker. So each agent introduces itself on a topic that agents receive on their own
broker only: when it connects, and when it receives another's introduction for the first time in a
while.

An introduction needs a proof. Each one contains a question, drawn anew whenever the agent connects
to its broker, and an answer is signed under a certificate of the id it names: a client can replay
messages, but not answer. (In an open federation the answer is enough.)

Of two agents with different ids the younger is the mistake and ends, but only while it is new: an
agent at work goes on. Of two agents with *one* id the younger leaves the broker to the other for a
while, whenever it detects it.

Source: docs/protocol.md 17.
"""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog
from mqtt5 import PublishPacket, QoS

from federator.errors import ConfigError
from federator.protocol.messages.control import PROOF_BYTES_MAX
from federator.protocol.messages.topics import agents_topic
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.trust.guard import Guard
from federator.protocol.trust.proofs import presence_text
from federator.protocol.types import BrokerId, Epoch, Millis
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.mqtt.parts import Part
from federator.runtime.mqtt.subscriptions import live_filter
from federator.runtime.process.clocks import monotonic_ms

NEW_MS = 10_000
"""How long after it first reached its broker an agent ends for one with another id."""

ANSWER_GAP_MS = Millis(10_000)
"""Least time between two answers, or two complaints, to one agent."""

ANSWERED_MAX = 64
"""Bound of the remembered ids, and of the signatures made or verified within the gap."""

EXIT_CODE = 78
DRAWN_BYTES: Final = 16
"""Length of the random value of a run, and of each question."""

_DRAWN: Final = rf"[0-9a-f]{{{2 * DRAWN_BYTES}}}"
_WORD: Final = re.compile(
    rf"(\d{{1,10}}) (\d{{1,19}}) ({_DRAWN}) ({_DRAWN})"
    rf"(?: ({_DRAWN}) ((?:[0-9a-f]{{2}}){{0,{PROOF_BYTES_MAX}}}))?".encode()
)

_log = structlog.get_logger()


class AgentAtBroker(NamedTuple):
    """An agent at a broker; the one that started later is greater."""

    epoch: Epoch
    id: BrokerId
    run: str = ""


@dataclass(frozen=True, slots=True)
class Word:
    """An agent's introduction at its own broker, with a question to other agents there."""

    agent: AgentAtBroker
    question: str
    answered: str = ""  # the question that this answers, if any
    proof: bytes = b""  # the signature of the answer; none in an open federation

    def encode(self) -> bytes:
        epoch, id, run = self.agent
        answer = f" {self.answered} {self.proof.hex()}" if self.answered else ""
        return f"{id} {epoch} {run} {self.question}{answer}".encode()

    @classmethod
    def decode(cls, payload: bytes) -> "Word | None":
        """The decoded introduction; ``None`` when ``payload`` is none."""
        match_ = _WORD.fullmatch(payload)
        if match_ is None:
            return None
        id, epoch, run, question, answered, proof = ((g or b"").decode() for g in match_.groups())
        agent = AgentAtBroker(Epoch(int(epoch)), BrokerId(int(id)), run)
        return cls(agent, question, answered, bytes.fromhex(proof))


@dataclass(kw_only=True, eq=False, repr=False)
class SharedBrokerGuard:
    """Watches for other agents at our own broker.

    Args:
        federation: Agents of several federations may share a broker.
        guard: Signs answers and verifies them; ``None`` in an open federation.
        end: Ends this agent with the error.
        give_way: Leaves the broker to another agent with our id.
    """

    me: AgentAtBroker
    federation: str
    url: str
    link: MqttLink
    guard: Guard | None
    end: Callable[[ConfigError], None]
    give_way: Callable[[], None]

    def __post_init__(self) -> None:
        self.topic = agents_topic(self.federation)
        self.me = self.me._replace(run=secrets.token_hex(DRAWN_BYTES))
        self._question = secrets.token_hex(DRAWN_BYTES)
        self._since_ms: Millis | None = None
        self._answers = _limiter()
        self._complaints = _limiter()
        self._work = 0
        self._work_since_ms = monotonic_ms()

    def on_local_up(self, now_ms: Millis) -> None:
        """Introduce ourselves at our broker and ask for other agents."""
        if self._since_ms is None:
            self._since_ms = now_ms
        self._question = secrets.token_hex(DRAWN_BYTES)
        self._publish_claim()

    def part(self) -> Part:
        return Part(
            subscriptions=[live_filter(self.topic, QoS.AT_MOST_ONCE, no_local=True)],
            topics={self.topic: self.on_publish},
        )

    def on_publish(self, packet: PublishPacket) -> None:
        """Handle the introduction of an agent at our broker."""
        word = Word.decode(packet.payload)
        if word is None or word.agent.run == self.me.run:
            return
        now_ms = monotonic_ms()
        if self._may_work(now_ms) and self._answers.allow(word.agent.id, now_ms):
            self._publish_claim(answering=word.question)
        if word.answered == self._question and self._may_work(now_ms) and self._is_proven(word):
            self._on_agent(word.agent, now_ms)

    def _on_agent(self, other: AgentAtBroker, now_ms: Millis) -> None:
        """Handle the proven presence of another agent."""
        if other.id == self.me.id:
            if self.me > other:
                self.give_way()
            return
        if self._complaints.allow(other.id, now_ms):
            _log.error("broker.shared", id=self.me.id, other=other.id, broker=self.url)
        is_new = self._since_ms is None or now_ms - self._since_ms < NEW_MS
        if is_new and self.me > other:
            self.end(
                ConfigError(
                    f"broker.url: {self.url} has an agent already, with id {other.id}: "
                    "run one agent per broker, or name another broker",
                    exit_code=EXIT_CODE,
                )
            )

    def _may_work(self, now_ms: Millis) -> bool:
        """Whether one more signature may be made or verified: any client can send introductions."""
        if now_ms - self._work_since_ms >= ANSWER_GAP_MS:
            self._work, self._work_since_ms = 0, now_ms
        self._work += 1
        return self._work <= ANSWERED_MAX

    def _is_proven(self, word: Word) -> bool:
        text = self._signed_text(word.agent, word.answered)
        return self.guard is None or self.guard.vouched(word.agent.id, text, word.proof)

    def _signed_text(self, agent: AgentAtBroker, answered: str) -> bytes:
        claim = f"{agent.id} {agent.epoch} {agent.run} {answered}"
        return presence_text(self.federation, claim.encode())

    def _publish_claim(self, *, answering: str = "") -> None:
        """Introduce ourselves, answering another agent's question if given."""
        proof = b""
        if answering and self.guard is not None:
            proof = self.guard.vouch(self._signed_text(self.me, answering))
        word = Word(self.me, self._question, answering, proof)
        self.link.publish(self.topic, word.encode(), urgent=True)


def _limiter() -> RateLimiter[BrokerId]:
    return RateLimiter(gap_ms=ANSWER_GAP_MS, keys_max=ANSWERED_MAX)
