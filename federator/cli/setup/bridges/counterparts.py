"""Converts the bridges of a broker into an agent's configuration, and reports what has no
counterpart.

``protocol.policy.bridge_lines`` finds the renames and rules; this module writes the addresses of
brokers, our credentials there, and texts about what is lost.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from federator.cli.options import toml
from federator.cli.setup.bridges.mosquitto_conf import Connection, Place
from federator.protocol.filters.renames import Pair, is_prefix
from federator.protocol.policy.bridge_lines import (
    WAYS,
    BridgeLine,
    Difference,
    counterpart,
    filters_of,
)

NAMED_MAX: Final = 40
"""Characters of a topic that a message shows."""

WANTING: Final = {
    "bridge_capath": "agents take one file: put the authorities into it and name it as ca_file",
    "bridge_identity": "agents have no pre-shared keys: give the other broker certificates",
    "bridge_psk": "agents have no pre-shared keys: give the other broker certificates",
    "bridge_alpn": "agents do not negotiate: name a port that speaks MQTT",
    "bridge_bind_address": "the system chooses the address: set a route",
    "bridge_max_packet_size": "the other broker's own limit holds",
    "threshold": "links are always up",
    "idle_timeout": "links are always up",
    "local_username": "give this agent's user at your broker with --user",
    "local_password": "give this agent's password at your broker with --password-file",
}
"""Options without counterpart, with any value, and what to do."""

WANTING_IF: Final = {
    ("bridge_insecure", "true"): "agents always look at the name in a certificate: correct it",
    ("bridge_require_ocsp", "true"): "agents do not ask for OCSP",
    ("bridge_outgoing_retain", "false"): "what is retained here is retained there",
    ("start_type", "lazy"): "links are always up",
    ("start_type", "once"): "links come back",
}
"""The same for options with this value."""


@dataclass(slots=True)
class Neighbour:
    """A broker at the other end of bridges."""

    address: str
    id: int
    connections: list[int]  # places among the bridges


@dataclass(slots=True)
class Written:
    """The configuration to write, and the texts for operators.

    Attributes:
        lines: Of the configuration, behind those about this broker.
        passwords: Files to write, closed to others.
        without: Lines that have no counterpart, and why.
        differs: What crosses otherwise than before.
        elsewhere: What the agents at other brokers need, by address.
        notes: What else is to be known.
    """

    lines: list[str] = field(default_factory=list)
    passwords: dict[Path, str] = field(default_factory=dict)
    without: list[tuple[Place, str]] = field(default_factory=list)
    differs: list[tuple[Place, str]] = field(default_factory=list)
    elsewhere: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def texts(self) -> dict[str, list[str]]:
        """The texts for operators, by title."""
        return {
            "without_counterpart": [_line(place, why) for place, why in self.without],
            "otherwise_than_before": [_line(place, what) for place, what in self.differs],
            "at_other_agents": [
                f"{address}: {text}" for address, texts in self.elsewhere.items() for text in texts
            ],
            "to_know": self.notes,
        }

    def as_text(self) -> Iterator[str]:
        """The same for people, line by line."""
        for title, lines in self.texts.items():
            if lines:
                yield f"{title.replace('_', ' ')}:"
                yield from (f"  {line}" for line in lines)


def neighbours_of(
    bridges: Sequence[Connection], ids: Mapping[str, Sequence[int]]
) -> list[Neighbour]:
    """The brokers at the other ends of ``bridges``. ``ids``: by connection, one for each
    address."""
    found: dict[str, Neighbour] = {}
    by_id: dict[int, str] = {}
    for at, bridge in enumerate(bridges):
        for address, id in zip(bridge.addresses, ids[bridge.name], strict=True):
            there = found.setdefault(address, Neighbour(address, id, []))
            if there.id != id or by_id.setdefault(id, address) != address:
                what = f"broker {id} at {address} has another id, or its id another broker"
                raise bridge.place.mistake(f"{what}: give each broker of --remote one id")
            there.connections.append(at)
    return list(found.values())


@dataclass(slots=True)
class _Translation:
    """The counterparts of all bridges' lines.

    Attributes:
        taken: By bridge, the lines that have a counterpart.
        pairs: By bridge, the renames at the agent that renames for it.
        refused: The lines without counterpart, and why.
        differs: Differences between lines and their counterparts.
    """

    taken: list[list[BridgeLine]] = field(default_factory=list)
    pairs: list[tuple[Pair, ...]] = field(default_factory=list)
    refused: list[tuple[Place, str]] = field(default_factory=list)
    differs: list[tuple[Place, str]] = field(default_factory=list)


def _translated(places: Sequence[Mapping[BridgeLine, Place]], *, there: bool) -> _Translation:
    """The counterparts of the lines in ``places``, which are by bridge.

    ``there``: the names of the federation are those at the other brokers, so that this agent
    renames for all bridges together. Otherwise the agent at the other end of each bridge does, for
    which the lines are mirrored.
    """
    result = _Translation()
    groups = [list(range(len(places)))] if there else [[at] for at in range(len(places))]
    ends = ("here", "there") if there else ("there", "here")

    def turned(line: BridgeLine) -> BridgeLine:
        return line if there else line.mirrored

    for group in groups:
        found = counterpart([[turned(line) for line in places[at]] for at in group])
        result.taken += [[turned(line) for line in lines] for lines in found.lines]
        result.pairs += [found.pairs] * len(group)
        for bridge, line, owner in found.refused:
            by = next(bridge[turned(owner)] for bridge in places if turned(owner) in bridge)
            place = places[group[bridge]][turned(line)]
            result.refused.append((place, _refusal(turned(owner), by)))
        for difference in found.differs:
            place = places[group[difference.bridge]][turned(difference.line)]
            result.differs.append((place, _difference(difference, *ends)))
    return result


def written(
    bridges: Sequence[Connection], neighbours: Sequence[Neighbour], home: Path, *, there: bool
) -> Written:
    """The counterpart of ``bridges``, for a configuration in the folder ``home``.

    ``there``: the names of the federation are those at the other brokers, else those here.
    """
    result = Written()
    places = [_translatable(bridge, result) for bridge in bridges]
    translation = _translated(places, there=there)
    result.without += translation.refused
    result.differs += translation.differs
    every = [line for lines in translation.taken for line in lines]
    own_pairs = translation.pairs[0] if there else ()
    result.lines += _of_rules(every, own_pairs)
    for neighbour in neighbours:
        _add_neighbour(result, neighbour, bridges, translation, home, there=there)
    if not there:
        for bridge, pairs in zip(bridges, translation.pairs, strict=True):
            for address in bridge.addresses if pairs else ():
                result.elsewhere.setdefault(address, []).append(f"[rules] {_renames(pairs)}")
    elif own_pairs:
        result.notes.append(
            "names are those at the other broker: where its agent renames too, put its prefix"
            " before those of [rules] rename and of its neighbour's import and export"
        )
    other_way = _translated(places, there=not there)
    if len(other_way.refused) < len(translation.refused):
        names = "here" if there else "there"
        result.notes.append(f"fewer lines are without counterpart with --names {names}")
    result.notes.append("a publication keeps the QoS that it was published with: no line lowers it")
    return result


def _translatable(bridge: Connection, result: Written) -> dict[BridgeLine, Place]:
    """The lines of ``bridge`` that can have a counterpart; the others, and such options, are
    reported."""
    found: dict[BridgeLine, Place] = {}
    for place, line in bridge.topics:
        filters = line.local_filter, line.remote_filter
        if any(filter.startswith("$") for filter in filters):
            result.without.append((place, "what starts with $ never leaves a broker"))
        elif is_prefix(filters[0]) != is_prefix(filters[1]):
            result.without.append((place, "one of its two topics ends with /, the other does not"))
        else:
            found.setdefault(line, place)
    for option, (place, value) in bridge.options.items():
        why = WANTING.get(option) or WANTING_IF.get((option, value))
        if why is not None:
            result.without.append((place, why))
    return found


def _of_rules(lines: Sequence[BridgeLine], pairs: Sequence[Pair]) -> list[str]:
    wanted = filters_of(lines, "in", there=False)
    written_lines = [
        "",
        "[share]",
        'scope = "broker"   # as with bridges: each broker serves its own groups',
    ]
    if wanted:
        written_lines += [
            "",
            "[discovery]",
            f"filters = {toml(wanted)}   # whoever listens, as bridges do",
        ]
    written_lines += ["", "[rules]", f"import = {toml(wanted)}"]
    written_lines.append(f"export = {toml(filters_of(lines, 'out', there=False))}")
    return [*written_lines, *([_renames(pairs)] if pairs else [])]


def _renames(pairs: Sequence[Pair]) -> str:
    tables = (
        f"{{local = {toml(here)}, federation = {toml(there)}"
        f"{'' if is_prefix(here) else ', whole = true'}}}"
        for here, there in pairs
    )
    return f"rename = [{', '.join(tables)}]"


def _add_neighbour(
    result: Written,
    neighbour: Neighbour,
    bridges: Sequence[Connection],
    translation: _Translation,
    home: Path,
    *,
    there: bool,
) -> None:
    own = [bridges[at] for at in neighbour.connections]
    names = " and ".join(bridge.name for bridge in own)
    lines = [line for at in neighbour.connections for line in translation.taken[at]]
    if not lines:
        result.notes.append(f"{neighbour.address}: no neighbour, for nothing of {names} crosses")
        return
    out, in_ = (filters_of(lines, way, there=there) for way in WAYS)
    tls = any(bridge.value_of(option) not in (None, "false") for bridge in own for option in TLS_BY)
    scheme = "mqtts" if tls else "mqtt"
    result.lines += ["", f"[[neighbours]]   # {names}", f'url = "{scheme}://{neighbour.address}"']
    result.lines += [f"id = {neighbour.id}", f"import = {toml(in_)}", f"export = {toml(out)}"]
    result.lines += _login(result, own, home, tls=tls)
    if out:
        out = filters_of(lines, "out", there=True)
        result.elsewhere.setdefault(neighbour.address, []).append(
            f"[discovery] filters = {toml(out)}, for clients that subscribe # or +/#"
        )


def _login(result: Written, own: Sequence[Connection], home: Path, *, tls: bool) -> Iterator[str]:
    """Our credentials at a neighbour: from the first of its connections that has them."""
    options: dict[str, tuple[str, ...]] = {"username": ("remote_username", "username")}
    if tls:
        options |= {f"{key}_file": (f"bridge_{key}file",) for key in ("ca", "cert", "key")}
    for key, given in options.items():
        found = (
            (connection, value)
            for connection in own
            if (value := connection.value_of(*given)) is not None
        )
        bridge, value = next(found, (None, ""))
        if bridge is not None:
            yield f"{key} = {toml(value)}"
            secret = bridge.value_of("remote_password", "password")
            if key == "username" and secret is not None:
                safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in bridge.name)
                result.passwords[home / f"bridge-{safe}.password"] = secret
                yield f"password_file = {toml(f'bridge-{safe}.password')}"


TLS_BY: Final = (
    "bridge_cafile", "bridge_capath", "bridge_tls_use_os_certs", "bridge_identity", "bridge_psk"
)  # fmt: skip


def _line(place: Place, what: str) -> str:
    option = place.text.partition(" ")[0]  # the values of other options may be secrets
    return f"{place}: {place.text if option == 'topic' else option}: {what}"


def _refusal(owner: BridgeLine, where: Place) -> str:
    what = f"{_cut(owner.local_filter)} here is {_cut(owner.remote_filter)} there by {where}"
    return f"{what}, and a topic has one name there, both ways: keep a bridge for this line"


def _difference(difference: Difference, origin: str, goal: str) -> str:
    """``origin`` and ``goal``: where publications that go ``out`` are published, and where they
    arrive."""
    if difference.way == "in":
        origin, goal = goal, origin
    what = f"{_cut(difference.topic)}, published {origin}, was {_cut(difference.was)} {goal}"
    return (
        f"{what}: now "
        f"{'it is not there' if difference.now is None else f'it is {_cut(difference.now)}'}"
    )


def _cut(topic: str) -> str:
    return topic if len(topic) <= NAMED_MAX else topic[: NAMED_MAX - 3] + "..."
