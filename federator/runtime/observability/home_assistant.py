"""The topics and payloads by which Home Assistant shows our broker and its links as devices.

Home Assistant builds a device from one retained message, the discovery payload, and then subscribes
to the topics in it. These begin with ``federator/``, not with ``$fed/``: so they reach a Home
Assistant at another broker like any client's publications.

A broker that dies can publish no Will. So a state that is not repeated within ``EXPIRES_S`` is
void, and Home Assistant shows its device as unavailable.

This module only makes topics and payloads; ``runtime.agent.home_assistant`` publishes them.

Source: Home Assistant's documentation, "MQTT", "Device discovery payload".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from federator.protocol.messages.broker_names import named
from federator.protocol.types import BrokerId

EVERY_S: Final = 10
"""Interval at which states are repeated."""
EXPIRES_S: Final = 3 * EVERY_S

ON, OFF = "ON", "OFF"
ONLINE, OFFLINE = "online", "offline"

_UNSAFE = re.compile(r"[^A-Za-z0-9]")

Payload = dict[str, object]


@dataclass(frozen=True, slots=True)
class OwnNames:
    """The topics and identifiers of one agent at Home Assistant.

    Args:
        prefix: Home Assistant's discovery prefix.
        federation: The federation's name.
        broker: The id of our broker.
        release: The release of federator.
    """

    prefix: str
    federation: str
    broker: BrokerId
    release: str

    @property
    def availability_topic(self) -> str:
        return f"federator/{self.federation}/{self.broker}/availability"

    def device_id(self, link: BrokerId | None = None) -> str:
        """The identifier of our broker, or of its link to broker ``link``; unique among agents."""
        own = f"federator_{_escaped(self.federation)}_{self.broker}"
        return own if link is None else f"{own}_{link}"

    def state_topic(self, link: BrokerId | None = None) -> str:
        """The topic for the state of our broker, or of its link to broker ``link``."""
        own = f"federator/{self.federation}/{self.broker}"
        return f"{own}/state" if link is None else f"{own}/links/{link}"

    def discovery_topic(self, link: BrokerId | None = None) -> str:
        """The topic for the discovery payload of a device."""
        return f"{self.prefix}/device/{self.device_id(link)}/config"


def broker_device(names: OwnNames, name: str) -> Payload:
    """The discovery payload of our broker, called ``name`` by its operator; this may be empty."""
    device = {"name": f"Broker {named(names.broker, name)}", "model": "MQTT broker"}
    ready = _component("binary_sensor", "Ready", "ready", device_class="running")
    standing = _component("sensor", "Standing", "standing")
    return _payload(names, None, device, {"ready": ready, "standing": standing})


def link_device(names: OwnNames, own_name: str, link: BrokerId, name: str) -> Payload:
    """The discovery payload of our link to broker ``link``, which is called ``name``."""
    ends = f"{named(names.broker, own_name)} to {named(link, name)}"
    device = {"name": f"Link {ends}", "model": "Link", "via_device": names.device_id()}
    up = _component("binary_sensor", "Connection", "up", device_class="connectivity")
    round_trip = _component("sensor", "Round trip", "round_trip_ms", device_class="duration")
    round_trip |= {"unit_of_measurement": "ms", "state_class": "measurement"}
    return _payload(names, link, device, {"up": up, "round_trip_ms": round_trip})


def broker_state(why_not_ready: str | None, standing: str | None) -> Payload:
    """The state of our broker.

    Args:
        why_not_ready: Why its agent is not ready; ``None`` when it is.
        standing: How it stands in the federation (``protocol.links.standing``); shown once its
            agent is ready.
    """
    return {"ready": OFF if why_not_ready else ON, "standing": why_not_ready or standing}


def link_state(*, up: bool, round_trip_ms: float | None) -> Payload:
    """The state of a link; with its round trip while it is up."""
    rounded_ms = round(round_trip_ms, 1) if up and round_trip_ms is not None else None
    return {"up": ON if up else OFF, "round_trip_ms": rounded_ms}


def _payload(
    names: OwnNames,
    link: BrokerId | None,
    device: Mapping[str, str],
    components: Mapping[str, Payload],
) -> Payload:
    """A discovery payload: the device, and what it shows by the keys of its state."""
    identifier = names.device_id(link)
    return {
        "device": {
            "identifiers": [identifier],
            "manufacturer": "federator",
            "sw_version": names.release,
            **device,
        },
        "origin": {"name": "federator", "sw_version": names.release},
        "state_topic": names.state_topic(link),
        "availability_topic": names.availability_topic,
        "components": {
            key: {**component, "unique_id": f"{identifier}_{key}"}
            for key, component in components.items()
        },
    }


def _component(platform: str, name: str, key: str, **more: str) -> Payload:
    """A value shown of a device: the one by ``key`` in its state."""
    template = f"{{{{ value_json.{key} }}}}"
    component: Payload = {"platform": platform, "name": name, "value_template": template, **more}
    return component | {"expire_after": EXPIRES_S, "entity_category": "diagnostic"}


def _escaped(name: str) -> str:
    """``name`` as a part of an identifier, in which Home Assistant allows no dot, for example.

    Other characters than letters and digits become ``-CODE-``, so different names stay different.
    """
    return _UNSAFE.sub(lambda unsafe: f"-{ord(unsafe[0]):x}-", name)
