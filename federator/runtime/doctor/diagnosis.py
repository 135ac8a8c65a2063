"""From a broker's behaviour to its faults, and the exact lines that fix them.

Pure: the same facts give the same report. A finding fails when publications would be lost or the
agent would be blind, and warns when the federation would only be slower or deliver more than
needed.

Source: mosquitto.conf(5); docs/ARCHITECTURE.md, "What we ask of a broker".
"""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

import mqtt5

from federator.config.settings import Settings
from federator.protocol.messages.topics import all_topics
from federator.protocol.retained.packets import TAKEN_BYTES
from federator.runtime.doctor.log_kinds import lines_for_log, missing_kinds
from federator.runtime.doctor.neighbours import LONG_BYTES, NeighbourFacts, WayBack
from federator.runtime.doctor.strangers import Speakers
from federator.runtime.mqtt.link import PACKET_BYTES_MAX
from federator.runtime.mqtt.probe import is_taken

CONFIG_EXIT_CODE = 78
QUEUE_LINE = "max_queued_messages 100000"
RESTART_LINES = ("max_queued_messages", "max_packet_size")
"""Existing sessions keep the former limit when the broker reads its file again."""
ADVERTISE = "set broker.advertise to what other hosts reach this broker by"
PUBLISHED = 2_000  # for one slow client: twice what a broker keeps by default
LONG_S_MAX = 0.5
FRAME_ROOM_BYTES = 65_536  # topic, header and filter keys around a frame's body
TOPIC_ROOM_BYTES = 1_024  # a PUBLISH around its payload
PAYLOADS = (131_072, 98_304, 65_536, 16_384, 4_096, 1_000, 100)

Outcome = Literal["ok", "warn", "fail"]
SUSPECT_VERSIONS = {
    "2.0.15": "expires the sessions of bridges",
    "2.0.16": "fails on first connects",
    "2.1.0": "has bugs in log topics and packet sizes",
}


@dataclass(frozen=True, slots=True)
class TopicAccess:
    """The result of publishing on ``topic``: the reason code in words, and whether it came back."""

    topic: str
    answer: str
    returned: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """The broker's behaviour."""

    version: str | None
    connack: mqtt5.ConnAckPacket
    logs: AbstractSet[str]  # those of ``LOG_KINDS`` with lines about our own actions
    control: TopicAccess
    clients: TopicAccess
    data_connection: Sequence[TopicAccess]
    system_seen: bool
    speakers: Speakers
    payload: int | None  # the longest of ``tried_lengths`` that came; ``None``: none was tried
    kept: int | None  # publications, of ``PUBLISHED``; ``None``: that could not be tried
    neighbours: NeighbourFacts


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: its result and, unless it is ``ok``, what to do."""

    name: str
    outcome: Outcome
    found: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All findings, and the lines that are missing in mosquitto.conf and in its acl_file."""

    findings: tuple[Finding, ...]
    config_lines: tuple[str, ...] = ()
    acl_lines: tuple[str, ...] = ()

    @property
    def takes_restart(self) -> bool:
        """Whether Mosquitto reads one of ``config_lines`` only at its start."""
        return any(line.startswith(RESTART_LINES) for line in self.config_lines)

    @property
    def exit_code(self) -> int:
        """0 when the broker can take part."""
        return CONFIG_EXIT_CODE if any(f.outcome == "fail" for f in self.findings) else 0


def judge(facts: Facts, settings: Settings) -> Report:
    """Every finding, in the order in which an operator should fix them."""
    findings = [
        _version(facts),
        _access("control topics", facts.control),
        _access("clients' topics", facts.clients),
        _data_connection(facts),
        _packet_size(facts, settings),
        *_limits(facts.connack),
        *_queue(facts),
        _log_topics(facts, settings),
        _system(facts),
        _strangers(facts, settings),
        *_neighbours(facts.neighbours, settings),
    ]
    dialled = not facts.neighbours.ways or any(way.back is None for way in facts.neighbours.ways)
    if dialled and _data_connection(facts).outcome != "fail":
        findings.append(_way_to_us(facts.neighbours))
    return Report(tuple(findings), _config_lines(facts, settings), _acl_lines(facts, settings))


def _version(facts: Facts) -> Finding:
    if facts.version is None:
        what = "it does not say: not Mosquitto, or $SYS may not be read"
        return Finding("version", "warn", what, "let the agent read $SYS/broker/#")
    number = facts.version.rpartition(" ")[2]
    if flaw := SUSPECT_VERSIONS.get(number):
        return Finding("version", "warn", f"{facts.version}, which {flaw}", "upgrade it")
    return Finding("version", "ok", facts.version)


def _access(what: str, tried: TopicAccess) -> Finding:
    if not is_taken(tried.answer):
        what_came = f"publishing was answered {tried.answer!r}"
        return Finding(what, "fail", what_came, "allow it in the ACL")
    if not tried.returned:
        what_came = "what we published did not come back to us"
        mend = "allow reading it in the ACL; a listener with mount_point cannot be used"
        return Finding(what, "fail", what_came, mend)
    return Finding(what, "ok", "can be published and read")


def _data_connection(facts: Facts) -> Finding:
    """The topics on which the data connection receives frames and its own marks.

    Without them it would seem well and carry nothing, or let publications in twice.
    """
    name = "data connection"
    for one in facts.data_connection:
        finding = _access(name, one)
        if finding.outcome == "fail":
            return Finding(name, "fail", f"{one.topic}: {finding.found}", finding.mend)
    topics = ", ".join(one.topic for one in facts.data_connection)
    return Finding(name, "ok", f"{topics}: can be published and read")


def _frame_packet_bytes(settings: Settings) -> int:
    return settings.data.frame_bytes_max + FRAME_ROOM_BYTES


def tried_lengths(settings: Settings, connack: mqtt5.ConnAckPacket) -> list[int]:
    """Payload lengths to try, the longest first: as far as the broker claims to accept them."""
    longest = min(connack.max_packet_size or PACKET_BYTES_MAX, _frame_packet_bytes(settings))
    lengths = {longest - TOPIC_ROOM_BYTES, *PAYLOADS}
    return sorted(
        (length for length in lengths if length + TOPIC_ROOM_BYTES <= longest), reverse=True
    )


def _lacks_length(facts: Facts, settings: Settings) -> tuple[str, int] | None:
    """The setting of the broker that is too low for frames, and its value; ``None``: none is."""
    needed, limit = _frame_packet_bytes(settings), facts.connack.max_packet_size
    if limit is not None and limit < needed:
        return "max_packet_size", limit
    if facts.payload is not None and facts.payload < needed - TOPIC_ROOM_BYTES:
        return "message_size_limit", facts.payload
    return None


def _packet_size(facts: Facts, settings: Settings) -> Finding:
    name, needed, limit = (
        "packet size",
        _frame_packet_bytes(settings),
        facts.connack.max_packet_size,
    )
    lacking = _lacks_length(facts, settings)
    if lacking is None:
        shown = "no limit" if limit is None else f"at most {limit} bytes"
        longest = min(limit or PACKET_BYTES_MAX, PACKET_BYTES_MAX) - FRAME_ROOM_BYTES
        shown += f"; publications of more than {longest} bytes may not cross"
        return Finding(name, "ok", shown)
    setting, most = lacking
    what = f"at most {most} bytes"
    if setting != "max_packet_size":
        what = f"payloads of {most} bytes come back, of more not all; longer ones tell nobody"
    mend = f"raise {setting} to {needed}: "
    if most < TAKEN_BYTES:
        mend += "agents' long lists of filters do not pass it"
        return Finding(name, "fail", what, mend)
    mend += "its clients get no longer publications; frames for others pass it in parts"
    return Finding(name, "warn", what, mend)


def _limits(connack: mqtt5.ConnAckPacket) -> list[Finding]:
    findings = []
    qos = int(connack.max_qos)
    mend = "" if qos == 2 else "set max_qos 2: publications of a higher QoS are refused"
    findings.append(Finding("QoS", "ok" if qos == 2 else "warn", f"up to {qos}", mend))
    if not connack.wildcard_subscription_available:
        findings.append(Finding("wildcards", "fail", "refused", "allow wildcard subscriptions"))
    if not connack.retain_available:
        mend = "set retain_available true: an agent's Will is retained, and refused with it"
        findings.append(Finding("retained", "fail", "refused", mend))
    window = connack.receive_max
    findings.append(Finding("in flight", "ok", f"{window} publications of QoS 1 and 2"))
    return findings


def _queue(facts: Facts) -> list[Finding]:
    if facts.kept is None:
        return []
    if facts.kept >= PUBLISHED:
        return [Finding("queue", "ok", f"{PUBLISHED} publications and more for one client")]
    what = f"of {PUBLISHED} publications {facts.kept} were kept for a slow client"
    mend = f"set {QUEUE_LINE}: log lines get lost in storms, publications after cuts"
    return [Finding("queue", "warn", what, mend)]


def _log_topics(facts: Facts, settings: Settings) -> Finding:
    missing = missing_kinds(facts.logs)
    if not missing:
        return Finding("log topics", "ok", "our own subscribe, unsubscribe and connect were told")
    if not settings.discovery.log_topics:
        return Finding("log topics", "ok", "not asked for: discovery.log_topics = false")
    what = f"{' and '.join(missing)} not told"
    if not facts.logs:
        what = "nothing is told: log topics are off, or may not be read"
    return Finding("log topics", "fail", what, "add the lines below and reload the broker")


def _system(facts: Facts) -> Finding:
    if facts.system_seen:
        return Finding("$SYS", "ok", "the number of subscriptions is told")
    what = "no $SYS/broker/subscriptions/count: lost log lines would go unnoticed"
    return Finding("$SYS", "warn", what, "set sys_interval 10, and allow $SYS/broker/# in the ACL")


def _strangers(facts: Facts, settings: Settings) -> Finding:
    speakers, topics = facts.speakers, all_topics(settings.federation)
    if speakers is Speakers.NOBODY:
        return Finding("ACL", "ok", f"strangers may not write {topics}")
    mend = "an acl_file as `federator doctor --acl` prints it, and allow_anonymous false"
    return Finding("ACL", "warn", f"{topics} may be written by {speakers}", mend)


def _neighbours(facts: NeighbourFacts, settings: Settings) -> Iterator[Finding]:
    """Whether we may publish there, and whether the answers can reach us."""
    agents = set(facts.agents_here.values())
    for way in facts.ways:
        if way.refused:
            mend = "give its broker's operator our user name, and the lines of `doctor --acl` there"
            yield Finding("neighbour", "fail", f"{way.address}: {way.failure}", mend)
        elif way.failure:
            mend = "start it, or correct the url; we try for ever"
            yield Finding("neighbour", "warn", f"{way.address}: {way.failure}", mend)
        elif way.ours:
            mend = "name another broker, or take this neighbour out"
            yield Finding("neighbour", "fail", f"{way.address}: leads to our own broker", mend)
        elif way.back is not None:
            yield _way_back(way.address, way.back, settings)
        elif way.unreached and not agents:
            what = f"{way.address}: we may speak there, and nobody there can connect to our broker"
            yield Finding("neighbour", "fail", what, f'{ADVERTISE}, or links.dial = "out"')
        elif not agents:
            what = f"{way.address}: we may speak there, its agent is not heard here"
            mend = "start it; if it runs, trust.refused in its log says whether security or keys "
            mend += 'differ; if nobody there can connect to our broker, set links.dial = "out"'
            yield Finding("neighbour", "warn", what, mend)
        else:
            speaks = ", its agent speaks here" if way.address in agents else ""
            yield Finding("neighbour", "ok", f"{way.address}: we may speak there{speaks}")


def _way_back(address: str, back: WayBack, settings: Settings) -> Finding:
    """Whether we may read our outbox at a neighbour's broker."""
    if not back.may_read:
        mend = "let its operator take the lines of "
        mend += f"`federator doctor --acl --outbound {settings.broker.id}=OUR-USER` there"
        what = f"{address}: we may speak there, and not hear what is said to us there"
        return Finding("neighbour", "fail", what, mend)
    if back.long_s is not None and back.long_s > LONG_S_MAX:
        what = f"{address}: {LONG_BYTES} bytes that are said to us there took {back.long_s:.1f} s"
        mend = "Mosquitto 2.0 is slow to write long packets into WebSockets: take 2.1, or mqtts://"
        return Finding("neighbour", "warn", what, mend)
    speaks = "its agent speaks" if back.agent_publishes else "nobody speaks"
    what = f"{address}: we may speak there, and hear what is said to us there; {speaks} to us"
    if back.agent_publishes:
        return Finding("neighbour", "ok", what)
    mend = "once our agent runs, its agent answers there, unless its links.dial_back = false"
    if settings.role == "leaf":
        mend = "once our agent runs, its agent answers there if it has [[leaves]] with id = "
        mend += f"{settings.broker.id}; a leaf has none: name a hub"
    return Finding("neighbour", "ok", what, mend)


def _way_to_us(facts: NeighbourFacts) -> Finding:
    if (way := facts.to_us).failure:
        return Finding("way to us", "warn", f"{way.address}: {way.failure}", ADVERTISE)
    agents = ", ".join(map(str, sorted(facts.agents_here)))
    agents_text = f"agents heard here: {agents}" if agents else "no agent is heard here yet"
    return Finding("way to us", "ok", f"{way.address}: leads here; {agents_text}")


def _config_lines(facts: Facts, settings: Settings) -> tuple[str, ...]:
    lines: list[str] = []
    if settings.discovery.log_topics:
        lines += lines_for_log(facts.logs)
    if not facts.system_seen:
        lines.append("sys_interval 10")
    if facts.kept is not None and facts.kept < PUBLISHED:
        lines.append(QUEUE_LINE)
    if (lacking := _lacks_length(facts, settings)) is not None:
        lines.append(f"{lacking[0]} {_frame_packet_bytes(settings)}")
    return tuple(lines)


def _acl_lines(facts: Facts, settings: Settings) -> tuple[str, ...]:
    """Lines of an acl_file. Its ``#`` does not match topics that begin with ``$``."""
    lines: list[str] = []
    if "fail" in (_access("", facts.control).outcome, _data_connection(facts).outcome):
        lines.append(f"topic readwrite $fed/{settings.federation}/#")
    if _access("", facts.clients).outcome == "fail":
        lines.append("topic readwrite #")
    if not facts.logs:
        if facts.version is None:  # nothing at all under $SYS: hidden rather than switched off
            lines.append("topic read $SYS/broker/#")
        elif lines:
            lines.append("topic read $SYS/broker/log/#")
    if lines and settings.broker.username:
        lines.insert(0, f"user {settings.broker.username}")
    return tuple(lines)
