"""Announces our broker and its links to Home Assistant, and removes old announcements.

Announcements are retained on the broker, beyond our own life. So a file of the state folder lists
their topics: what we no longer announce, because a link is gone, the prefix changed, or the feature
is off, is removed, after a restart too.

Source: docs/how-to/home-assistant.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
from mqtt5 import PublishPacket

from federator import __version__
from federator.config.settings import Settings
from federator.protocol.links.links import Links
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.mqtt.parts import Part
from federator.runtime.observability import home_assistant as ha
from federator.runtime.observability.readiness import Readiness
from federator.runtime.process.clocks import beat
from federator.runtime.storage import damage
from federator.runtime.storage.durable import DiskTrouble

CHECK_S: Final = 1.0
AGAIN_CHECKS: Final = round(ha.EVERY_S / CHECK_S)
DEVICES_AGAIN_CHECKS: Final = 60 * AGAIN_CHECKS
LINKS_TOLD_MAX: Final = 256

_Topics = tuple[str, ...]


@dataclass(eq=False, repr=False)
class HomeAssistantTeller:
    """Announces one agent.

    Args:
        settings: With the section ``home_assistant``.
        folder: The state folder.
        link: A connection to our broker; the federation carries what it publishes.
        links: Links to our neighbours.
        ready: Our readiness.
        name_of: The name of a broker, empty when it has none.
    """

    settings: Settings
    folder: Path
    link: MqttLink
    links: Links
    ready: Readiness
    name_of: Callable[[BrokerId], str]

    def __post_init__(self) -> None:
        section = self.settings.home_assistant
        self._names = ha.OwnNames(
            section.prefix, self.settings.federation, self.settings.broker_id, __version__
        )
        self._file = self.folder / "home-assistant.json"
        self._trouble = DiskTrouble()
        self._on_broker = self._noted()
        self._devices: dict[str, ha.Payload] = {}
        self._states: dict[str, ha.Payload] = {}

    @property
    def needed(self) -> bool:
        """Whether there is anything to announce or to remove."""
        return self.settings.home_assistant.discovery or bool(self._on_broker)

    def part(self) -> Part:
        return Part(tasks={"home assistant": self.run} if self.needed else {}, leave=self.withdraw)

    async def run(self) -> None:
        """Publish changes within ``CHECK_S``, states every ``EVERY_S``; or remove everything."""
        checks = 0
        while self.needed:
            if not self.link.connected:
                self._devices, self._states, checks = {}, {}, 0
            elif self.settings.home_assistant.discovery:
                self._tell(checks)
                checks += 1
            else:
                self._take_back(self._on_broker)
                self._note(())
            await beat(CHECK_S)

    def withdraw(self) -> None:
        """Mark our devices as unavailable, on an orderly exit."""
        if self.settings.home_assistant.discovery:
            self._say(self._names.availability_topic, ha.OFFLINE.encode(), retain=True)

    def _tell(self, checks: int) -> None:
        names, neighbours = self._names, self.links.neighbours
        shown = list(islice(sorted(neighbours), LINKS_TOLD_MAX))
        own_name = self.settings.broker.name
        devices = {names.discovery_topic(): ha.broker_device(names, own_name)}
        why_not = self.ready.why_not()
        standing = None if why_not else self.ready.standing().word.value
        states = {names.state_topic(): ha.broker_state(why_not, standing)}
        for id_ in shown:
            device = ha.link_device(names, own_name, id_, self.name_of(id_))
            devices[names.discovery_topic(id_)] = device
            link = neighbours[id_]
            told_of_link = ha.link_state(up=link.up, round_trip_ms=link.round_trip_ms)
            states[names.state_topic(id_)] = told_of_link
        self._tell_devices(devices, again=checks % DEVICES_AGAIN_CHECKS == 0)
        again = checks % AGAIN_CHECKS == 0
        if again:
            self._say(names.availability_topic, ha.ONLINE.encode(), retain=True)
        for topic, state in states.items():
            if again or _without_delay(state) != _without_delay(self._states.get(topic, {})):
                self._say(topic, msgspec.json.encode(state), retain=False)
        self._states = states

    def _tell_devices(self, devices: dict[str, ha.Payload], *, again: bool) -> None:
        topics = (*devices, self._names.availability_topic)
        if gone := tuple(sorted({*self._on_broker} - {*topics})):
            self._take_back(gone)
        if self._on_broker != topics:
            self._note(topics)  # before they are retained there
        for topic, device in devices.items():
            if again or device != self._devices.get(topic):
                self._say(topic, msgspec.json.encode(device), retain=True)
        self._devices = devices

    def _take_back(self, topics: _Topics) -> None:
        for topic in topics:
            self._say(topic, b"", retain=True)

    def _noted(self) -> _Topics:
        """The topics retained on the broker; a file with other content counts as none."""
        return damage.read(self._file, msgspec.json.Decoder(_Topics).decode) or ()

    def _note(self, topics: _Topics) -> None:
        """Write ``topics`` to the file; if the disk fails, we cannot remove them later."""
        self._on_broker = topics
        try:
            if topics:
                damage.write(self._file, msgspec.json.encode(topics))
            else:
                self._file.unlink(missing_ok=True)
        except OSError as error:
            self._trouble.on_error("assistant.not_noted", error)

    def _say(self, topic: str, payload: bytes, *, retain: bool) -> None:
        if self.link.connected:
            self.link.write_packets((PublishPacket(topic, payload, retain=retain).write(),), 1)


def _without_delay(state: ha.Payload) -> ha.Payload:
    """The part of a state that is published on change; a delay always changes."""
    return {key: value for key, value in state.items() if key != "round_trip_ms"}
