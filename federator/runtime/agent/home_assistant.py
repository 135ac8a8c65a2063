"""Tells Home Assistant of our broker and its links, and takes back what it was told.

What was told stands on the broker, retained, beyond our own life. So the topics are noted in a
file of the state folder: what is not told any more, because a link is gone, the prefix is another
one, or all of it is switched off, is taken back, after a restart too.

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
    """Tells of one agent.

    Args:
        settings: With its section ``home_assistant``.
        folder: The state folder.
        link: A connection to our broker; what it publishes the federation carries.
        links: With our neighbours.
        ready: How we stand.
        name_of: What people call a broker, empty when it has no name.
    """

    settings: Settings
    folder: Path
    link: MqttLink
    links: Links
    ready: Readiness
    name_of: Callable[[BrokerId], str]

    def __post_init__(self) -> None:
        told = self.settings.home_assistant
        self._names = ha.OwnNames(
            told.prefix, self.settings.federation, self.settings.broker_id, __version__
        )
        self._file = self.folder / "home-assistant.json"
        self._trouble = DiskTrouble()
        self._on_broker = self._noted()
        self._devices: dict[str, ha.Payload] = {}
        self._states: dict[str, ha.Payload] = {}

    @property
    def needed(self) -> bool:
        """Whether there is anything to tell, or to take back."""
        return self.settings.home_assistant.discovery or bool(self._on_broker)

    async def run(self) -> None:
        """Tell what changes within ``CHECK_S``, states every ``EVERY_S``; or take all back."""
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
        """We leave in order: our devices stay, unavailable."""
        if self.settings.home_assistant.discovery:
            self._say(self._names.availability_topic, ha.OFFLINE.encode(), retain=True)

    def _tell(self, checks: int) -> None:
        names, known = self._names, self.links.neighbours
        told = list(islice(sorted(known), LINKS_TOLD_MAX))
        own_name = self.settings.broker.name
        devices = {names.discovery_topic(): ha.broker_device(names, own_name)}
        why_not = self.ready.why_not()
        standing = None if why_not else self.ready.standing().word.value
        states = {names.state_topic(): ha.broker_state(why_not, standing)}
        for id_ in told:
            device = ha.link_device(names, own_name, id_, self.name_of(id_))
            devices[names.discovery_topic(id_)] = device
            link = known[id_]
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
            self._note(topics)  # before they stand there
        for topic, device in devices.items():
            if again or device != self._devices.get(topic):
                self._say(topic, msgspec.json.encode(device), retain=True)
        self._devices = devices

    def _take_back(self, topics: _Topics) -> None:
        for topic in topics:
            self._say(topic, b"", retain=True)

    def _noted(self) -> _Topics:
        """What stands on the broker; a file that holds something else is as none."""
        return damage.read(self._file, msgspec.json.Decoder(_Topics).decode) or ()

    def _note(self, topics: _Topics) -> None:
        """Have the file name ``topics``; a disk that fails costs what we would take back later."""
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
    """What is told at once when it changes; a delay always does."""
    return {key: value for key, value in state.items() if key != "round_trip_ms"}
