"""What Home Assistant takes as a device's discovery, written down from its documentation.

Source: Home Assistant's documentation, "MQTT", "Device discovery payload".
"""

import json
import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

TOPIC = re.compile(r"homeassistant/device/[a-zA-Z0-9_-]+/config")
Topic = Annotated[str, Field(pattern=r"^[^+#\x00]+$")]


class Part(BaseModel):
    """A table whose keys are all known."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Device(Part):
    """The device's own table."""

    identifiers: list[str] = Field(min_length=1)
    name: str
    manufacturer: str
    model: str
    sw_version: str
    via_device: str | None = None


class Origin(Part):
    """Who says so."""

    name: str
    sw_version: str


class Component(Part):
    """What both kinds of entity may say."""

    name: str
    unique_id: str
    value_template: str
    expire_after: Annotated[int, Field(gt=0)]
    entity_category: Literal["config", "diagnostic"]


class BinarySensor(Component):
    """Its states are ``ON`` and ``OFF``."""

    platform: Literal["binary_sensor"]
    device_class: Literal["connectivity", "running", "problem"]


class Sensor(Component):
    """A duration needs its unit."""

    platform: Literal["sensor"]
    device_class: Literal["duration"] | None = None
    unit_of_measurement: Literal["d", "h", "min", "s", "ms"] | None = None
    state_class: Literal["measurement"] | None = None


class DevicePayload(Part):
    """The whole message."""

    device: Device
    origin: Origin
    state_topic: Topic
    availability_topic: Topic
    components: dict[str, Annotated[BinarySensor | Sensor, Field(discriminator="platform")]]

    @classmethod
    def taken(cls, topic: str, payload: dict[str, Any]) -> Self:
        """The message, if Home Assistant would take it on ``topic``."""
        assert TOPIC.fullmatch(topic), topic
        return cls.model_validate_json(json.dumps(payload))
