"""Announces our broker and its links to Home Assistant, and removes old announcements.

Announcements are retained on the broker, beyond our own life. So a file of the state folder lists
their topics: what we no longer announce, because a link is gone, the prefix changed, or the feature
is off, is removed, after a restart too.

Source: docs/how-to/home-assistant.md.
"""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
from mqtt5 import PublishPacket

from federator import __version__
from federator.config.settings import Settings
from federator.protocol.links.links import Links
from federator.protocol.messages.guide import Health
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.observability import home_assistant as ha
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
    """

    settings: Settings
    folder: Path
    link: MqttLink
    links: Links

    def __post_init__(self) -> None:
        section = self.settings.home_assistant
        self._names = ha.OwnNames(
            section.prefix, self.settings.federation, self.settings.broker_id, __version__
        )
        self._file = self.folder / "home-assistant.json"
        self._disk_trouble = DiskTrouble()
        self._on_broker = self._noted()
        self._devices: dict[str, ha.Payload] = {}
        self._states: dict[str, ha.Payload] = {}
        self._checks = 0  # since our broker was connected

    @property
    def needed(self) -> bool:
        """Whether there is anything to announce or to remove."""
        return self.settings.home_assistant.discovery or bool(self._on_broker)

    def tell(self, health: Health) -> None:
        """Publish what changed, states every ``EVERY_S``; or remove everything.

        Called every ``CHECK_S``.
        """
        if not self.needed:
            return
        if not self.link.connected:
            self._devices, self._states, self._checks = {}, {}, 0
        elif self.settings.home_assistant.discovery:
            self._publish_state(health)
            self._checks += 1
        else:
            self._take_back(self._on_broker)
            self._note(())

    def withdraw(self) -> None:
        """Mark our devices as unavailable, on an orderly exit."""
        if self.settings.home_assistant.discovery:
            self._publish(self._names.availability_topic, ha.OFFLINE.encode(), retain=True)

    def _publish_state(self, health: Health) -> None:
        names, checks = self._names, self._checks
        devices = {names.discovery_topic(): ha.broker_device(names, health.name)}
        states = {names.state_topic(): ha.broker_state(health.reason, health.standing)}
        for text, up in islice(health.links.items(), LINKS_TOLD_MAX):
            id_ = BrokerId(int(text))
            device = ha.link_device(names, health.name, id_, health.names.get(text, ""))
            devices[names.discovery_topic(id_)] = device
            round_trip_ms = self.links.neighbours[id_].round_trip_ms
            link = ha.link_state(up=up == "up", round_trip_ms=round_trip_ms)
            states[names.state_topic(id_)] = link
        self._publish_devices(devices, again=checks % DEVICES_AGAIN_CHECKS == 0)
        again = checks % AGAIN_CHECKS == 0
        if again:
            self._publish(names.availability_topic, ha.ONLINE.encode(), retain=True)
        for topic, state in states.items():
            if again or _without_delay(state) != _without_delay(self._states.get(topic, {})):
                self._publish(topic, msgspec.json.encode(state), retain=False)
        self._states = states

    def _publish_devices(self, devices: dict[str, ha.Payload], *, again: bool) -> None:
        topics = (*devices, self._names.availability_topic)
        if gone := tuple(sorted({*self._on_broker} - {*topics})):
            self._take_back(gone)
        if self._on_broker != topics:
            self._note(topics)  # before they are retained there
        for topic, device in devices.items():
            if again or device != self._devices.get(topic):
                self._publish(topic, msgspec.json.encode(device), retain=True)
        self._devices = devices

    def _take_back(self, topics: _Topics) -> None:
        for topic in topics:
            self._publish(topic, b"", retain=True)

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
            self._disk_trouble.on_error("assistant.not_noted", error)

    def _publish(self, topic: str, payload: bytes, *, retain: bool) -> None:
        if self.link.connected:
            self.link.write_packets((PublishPacket(topic, payload, retain=retain).write(),), 1)


def _without_delay(state: ha.Payload) -> ha.Payload:
    """The part of a state that is published on change; a delay always changes."""
    return {key: value for key, value in state.items() if key != "round_trip_ms"}
