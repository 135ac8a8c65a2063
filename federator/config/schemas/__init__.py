"""JSON Schema of each daemon's configuration, for editors that complete and judge keys.

Made from the types that ``check-config`` uses, with the string below each key as its description.
Rules between keys (a password without a user name) cannot be expressed. The files beside this
module are the output of ``schema``, kept current by a test; a configuration names one in its first
line, ``#:schema FILE``, which taplo and Even Better TOML read.
"""

from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from federator.config.reference import DAEMONS, meanings
from federator.config.section import Section, keys_of
from federator.config.validation import adapter


class _Described(GenerateJsonSchema):
    """Adds descriptions, and removes titles, which only repeat the key."""

    def encode_default(self, dft: Any) -> Any:  # noqa: ANN401 - pydantic's own
        if isinstance(dft, Section):
            return adapter(type(dft)).dump_python(dft, mode="json", by_alias=True)
        return super().encode_default(dft)

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401 - pydantic's own
        made = super().dataclass_schema(schema)
        made.pop("title", None)
        if "description" in made:
            made["description"] = " ".join(made["description"].split())
        texts = meanings(schema["cls"])
        for name, key in keys_of(schema["cls"]).items():
            described = made["properties"][name]
            described.pop("title", None)
            if key.attribute in texts:
                described["description"] = texts[key.attribute]
        return made


def schema(daemon: str) -> dict[str, Any]:
    """The schema of a daemon's configuration; ``daemon`` is one of ``DAEMONS``."""
    root, _ = DAEMONS[daemon]
    made = adapter(root).json_schema(schema_generator=_Described)
    title = f"Configuration of federator: {daemon}"
    return {"$schema": _Described.schema_dialect, "title": title, **made}


def schema_file(daemon: str) -> Path:
    """The installed file with that schema, for editors."""
    return Path(__file__).with_name(f"{daemon}.json")
