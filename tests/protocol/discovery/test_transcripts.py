"""What our clients want, from every source, and what is wanted while that is not known."""

import re
from pathlib import Path

from federator.protocol.discovery.log_lines import (
    LOG_ROOT,
    ClientConnected,
    ClientEnded,
    ClientEvent,
    Dropping,
    SessionExpired,
    Subscribed,
    Unsubscribed,
)
from federator.protocol.types import Millis
from tests.protocol.discovery.harness import (
    CONNECTED,
    PLAIN,
    SHARED,
    UPTIME,
    VERSION,
    Driven,
    restarted,
)
from tests.transcripts import play, scenes

TOPICS = {
    "plain": PLAIN,
    "shared": SHARED,
    "connected": CONNECTED,
    "uptime": UPTIME,
    "version": VERSION,
}
SHOWN = (
    "doubtful",
    "kept_local",
    "ambiguous",
    "refused",
    "lines_lost",
    "groups_beyond_quota",
    "unknown",
)
"""Of what discovery tells operators: printed when it changes."""


class Stage:
    """One agent's discovery: prints which filters it adds (+) and removes (-), and the rest.

    ``settle`` prints filters only. Options: ``--session`` (the broker kept our session),
    ``--retained``, ``--duplicate``, ``--plain`` (only that count changed), ``--keeps`` (a
    persistent session), ``--v5`` (the client's protocol), ``--outdated`` (the record).
    """

    def __init__(self):
        self.agent = Driven()

    def do(self, command, *words):
        options = {word[2:] for word in words if word.startswith("--")}
        words = [repeated(word) for word in words if not word.startswith("--")]
        before, wanted = self.agent.discovery.snapshot(), set(self.agent.wanted)
        self.agent.notices.clear()
        self.agent.probes.clear()
        self.agent.rolls = 0
        self._obey(command, words, options)
        agent, after = self.agent, self.agent.discovery.snapshot()
        changes = (("+", agent.wanted - wanted), ("-", wanted - agent.wanted))
        if any(filters for _, filters in changes):
            yield " ".join(" ".join([sign, *sorted(some)]) for sign, some in changes if some)
        if command == "settle":
            return
        if command == "clients":
            yield str(after.clients)
        if (after.trusted, after.reason) != (before.trusted, before.reason):
            yield f"untrusted: {after.reason}" if after.reason else "trusted"
        trust = ("discovery.trusted", "discovery.untrusted")
        yield from (name for name in agent.names() if name not in trust)
        yield from ("asks for the counts" if each else "asks no more" for each in agent.probes)
        if agent.rolls and command != "up":
            yield "calls the roll"
        for name in SHOWN:
            if (value := getattr(after, name)) != getattr(before, name):
                yield f"{name} {value}"

    def _obey(self, command, words, options):
        agent, discovery, now_ms = self.agent, self.agent.discovery, self.agent.now_ms
        match command, words:
            case "agent", _:
                options = {key: parsed(text) for key, text in (word.split("=") for word in words)}
                if "filters" in options:
                    options["filters"] = tuple(options["filters"].split(","))
                self.agent = Driven(**options)
            case (("settle" | "later" | "packets"), _):
                numbers = map(int, words)
                extra = {"duplicate": True} if "duplicate" in options else {}
                getattr(agent, command)(*numbers, **extra)
            case "counts", _:
                (agent.count_plain if "plain" in options else agent.counts)(*map(int, words))
            case "clients", []:
                pass
            case "up", []:
                agent.up(session_present="session" in options)
            case "back", []:  # and of what the broker says of itself nothing has come yet
                agent.apply(discovery.on_broker_up(session_present=True, now_ms=now_ms))
            case "down", []:
                agent.down()
            case "mark", []:
                agent.mark()
            case "marked", [ago_ms]:
                discovery.on_mark(Millis(now_ms - int(ago_ms)))
            case "sys", [topic, value]:
                agent.sys(TOPICS[topic], value, retained="retained" in options)
            case "line", [topic, text]:
                agent.line(f"{LOG_ROOT}{topic}", f"1700000000: {text}")
            case "register", [text]:
                agent.apply(discovery.on_regular_topic(text.encode(), now_ms=now_ms))
            case "own", [id, *filters]:
                held = frozenset(filters)
                agent.apply(discovery.on_own_subscriptions(id, held, now_ms=now_ms))
            case "restart", [away]:
                away_ms = None if away == "killed" else int(away)
                self.agent = restarted(agent, away_ms=away_ms, outdated="outdated" in options)
            case _:
                agent.log(*events(command, *words, options=options))


def repeated(word):
    """The word with ``x*3`` written out, as ``xxx``."""
    return re.sub(r"(\S)\*(\d+)", lambda found: found[1] * int(found[2]), word)


def parsed(text):
    if text in ("True", "False"):
        return text == "True"
    return int(text) if text.isdecimal() else text


def events(command: str, id: str, *filters: str, options: set[str]) -> list[ClientEvent]:
    """The lines of the broker's log about a client."""
    protocol = next((int(each[1:]) for each in options if each[0] == "v"), 4)
    match command:
        case "arrive":
            came = ClientConnected(id, "keeps" not in options, protocol)
            return [came, *(Subscribed(id, 1, filter) for filter in filters)]
        case "subscribe":
            return [Subscribed(id, 1, filter) for filter in filters]
        case "unsubscribe":
            return [Unsubscribed(id, filter) for filter in filters]
        case "end":
            return [ClientEnded(id)]
        case "expire":
            return [SessionExpired(id)]
        case "dropping":
            return [Dropping(id)]
    raise AssertionError(command)


@scenes(*Path(__file__).parent.glob("*.txt"))
def test_transcript(path, number):
    play(path, number, Stage())
