"""Pages for consoles over MQTT: an agent's state, the routes of topics, the subscribers.

A console watches a whole federation, and the HTTP pages of agents are on loopback. So some of them
are also available on our broker, to clients with the right to ask: in a signed federation, to
operators. A question costs the work of one page, so their number is bounded; without questions
nothing is measured or sent.

Source: docs/protocol.md 15; docs/console.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from mqtt5 import PublishPacket
from msgspec import structs

from federator.errors import DecodeError
from federator.protocol.filters import matches, validate_filter, validate_topic, without_share
from federator.protocol.messages import json_codec, operators, topics
from federator.protocol.messages.session_records import FlowRow, row_in
from federator.protocol.rate_limiter import TokenBucket
from federator.protocol.telemetry.agent_status import LivePage
from federator.protocol.trust.words import Wanted, at, is_signed
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.mqtt.parts import Part
from federator.runtime.mqtt.subscriptions import live_filter
from federator.runtime.observability.routes_view import RoutesView
from federator.runtime.process.clocks import monotonic_ms, wall_clock_us
from federator.runtime.process.notices import Complaints
from federator.runtime.trust.words import SignedWords

QUESTIONS_PER_S: Final = 20
"""How many are answered; further ones are dropped: ask again."""
FOUND_MAX: Final = 200
"""Rows, and filters, in the answer to one search; beside them, their totals."""
SEARCHED_MAX: Final = 4_000
"""Rows, and filters, that one search looks at while publications wait: 26 ms."""
SEARCHES_PER_S: Final = 2

Answer = Mapping[str, object]


@dataclass(kw_only=True, eq=False, repr=False)
class PageService:
    """Answers questions for pages on our own broker."""

    federation: str
    broker: BrokerId
    link: MqttLink  # the control connection to our broker
    words: SignedWords  # verifies questions, and signs answers
    live: Callable[[], LivePage]
    routes: RoutesView
    filters: Callable[[], frozenset[str]]  # of our broker's clients

    def __post_init__(self) -> None:
        self.malformed = 0  # questions that do not decode
        self.refused = 0  # questions beyond the bound
        self.answered = 0
        self.topic = topics.page_topic(self.federation)
        # Unsigned questions take no room from signed ones.
        self._buckets = {signed: TokenBucket(QUESTIONS_PER_S) for signed in (False, True)}
        self._searches = {signed: TokenBucket(SEARCHES_PER_S) for signed in (False, True)}
        self._complain = Complaints().complain

    def part(self) -> Part:
        """Questions have no sender, so retained ones are not subscribed."""
        subscription = live_filter(self.topic, no_local=True)
        return Part(subscriptions=[subscription], topics={self.topic: self.on_question})

    def on_question(self, packet: PublishPacket) -> None:
        """Answer an authentic question, if there is room."""
        try:
            question = json_codec.decode(operators.PageQuestion, packet.payload)
        except DecodeError as error:
            self.malformed += 1
            self._complain("page.malformed", reason=str(error)[:200], so_far=self.malformed)
            return
        wanted = Wanted("operator", to=at(self.broker), place=question.token, ages=True)
        if not self.words.believes(self.topic, packet.payload, wanted):
            return  # it uses up no room
        now_ms, is_search = monotonic_ms(), question.page == "search"
        signed = self.words.judges and is_signed(packet.payload)
        buckets = [self._buckets[signed], *([self._searches[signed]] if is_search else [])]
        if not all(bucket.take(now_ms) for bucket in buckets):
            self.refused += 1
            return
        self._answer(question)

    def _answer(self, question: operators.PageQuestion) -> None:
        body: Answer = {}
        wrong = ""
        try:
            body = self._body(question)
        except ValueError as error:
            wrong = str(error)[:200]
        answer = self._encoded(question, body, wrong)
        if len(answer) > json_codec.MESSAGE_BYTES_MAX:
            answer = self._encoded(question, {}, f"the page has {len(answer)} bytes: too many")
        topic = topics.paged_topic(self.federation, question.token)
        self.answered += self.link.publish(topic, self.words.sign(topic, answer))

    def _body(self, question: operators.PageQuestion) -> Answer:
        match question.page:
            case "live":
                return structs.asdict(self.live())
            case "explain":
                validate_topic(question.about)
                return self.routes.explain(question.about)
            case "mesh":
                validate_filter(question.about)
                return self.routes.mesh(question.about)
            case "search":
                return self._search(question.about)

    def _search(self, text: str) -> Answer:
        """The flow table rows and the filters of our broker's clients that match ``text``.

        A row matches if its client or topic contains it, in any case, or if its subscription covers
        it as a topic.
        """
        failover, lowered, filters = self.routes.node.failover, text.lower(), self.filters()
        table = failover.table
        records = islice(table.texts(self.broker), SEARCHED_MAX)
        rows = [row for row in map(row_in, records) if _concerns(row, text, lowered)]
        matching = sorted(
            filter_
            for filter_ in islice(filters, SEARCHED_MAX)
            if lowered in filter_.lower() or _takes(filter_, text)
        )
        return {
            "rows": [
                {**structs.asdict(row), "broker": self.broker} for row in sorted(rows)[:FOUND_MAX]
            ],
            "rows_total": len(rows),
            "filters": matching[:FOUND_MAX],
            "filters_total": len(matching),
            "reported": failover.active,
            "whole": max(table.count(self.broker), len(filters)) <= SEARCHED_MAX,
        }

    def _encoded(self, question: operators.PageQuestion, body: Answer, wrong: str) -> bytes:
        answer = operators.PageAnswer(
            broker=self.broker,
            number=question.number,
            at_us=wall_clock_us(),
            body=dict(body),
            wrong=wrong,
        )
        return json_codec.encode(answer)


def _concerns(row: FlowRow, text: str, wanted: str) -> bool:
    if wanted in row.client.lower() or wanted in row.topic.lower():
        return True
    return row.action == "sub" and _takes(row.topic, text)


def _takes(filter_: str, text: str) -> bool:
    """Whether ``text``, read as a topic, matches ``filter_``."""
    return bool(text) and matches(without_share(filter_), text)
