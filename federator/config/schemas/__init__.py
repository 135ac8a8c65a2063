"""JSON Schema of each daemon's configuration, for editors that complete and judge keys.

Made from the types that ``check-config`` judges by, with what stands below each key as its
description. Rules between keys (a password without a user name) are beyond a schema. The files
beside this module are what ``schema`` makes, kept current by a test; a configuration names one in
its first line, ``#:schema FILE``, as taplo and Even Better TOML read it.
"""

from pathlib import Path
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema

from federator.config.all_brokers.collector import CollectorSettings
from federator.config.all_brokers.console import ConsoleSettings
from federator.config.all_brokers.steerer import SteererSettings
from federator.config.gateway import GatewaySettings
from federator.config.reference import meanings
from federator.config.section import Section, keys_of
from federator.config.settings import Settings
from federator.config.validation import adapter

ROOTS: Final[dict[str, type[Section]]] = {
    "agent": Settings,
    "gateway": GatewaySettings,
    "collector": CollectorSettings,
    "steerer": SteererSettings,
    "console": ConsoleSettings,
}


class _Described(GenerateJsonSchema):
    """With the texts that stand below the keys, and without titles, which say the key again."""

    def encode_default(self, dft: Any) -> Any:  # noqa: ANN401 - pydantic's own
        if isinstance(dft, Section):
            return adapter(type(dft)).dump_python(dft, mode="json", by_alias=True)
        return super().encode_default(dft)

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401 - pydantic's own
        made = super().dataclass_schema(schema)
        made.pop("title", None)
        if "description" in made:
            made["description"] = " ".join(made["description"].split())
        told = meanings(schema["cls"])
        for name, key in keys_of(schema["cls"]).items():
            described = made["properties"][name]
            described.pop("title", None)
            if key.attribute in told:
                described["description"] = told[key.attribute]
        return made


def schema(daemon: str) -> dict[str, Any]:
    """The schema of what that daemon reads; ``daemon`` is one of ``ROOTS``."""
    made = adapter(ROOTS[daemon]).json_schema(schema_generator=_Described)
    title = f"Configuration of federator: {daemon}"
    return {"$schema": _Described.schema_dialect, "title": title, **made}


def schema_file(daemon: str) -> Path:
    """The same as a file, for editors: it stays where the program is installed."""
    return Path(__file__).with_name(f"{daemon}.json")
