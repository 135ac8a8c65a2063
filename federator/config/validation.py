"""Converts the values of a file to settings: the only module where pydantic reads our types.

Only a process that reads a configuration imports this.
"""

from typing import Any, Final, TypeVar

from pydantic import TypeAdapter

from federator.config.section import Section

_Section = TypeVar("_Section", bound=Section)

_ADAPTERS: Final[dict[type[Section], TypeAdapter[Any]]] = {}


def adapter(kind: type[_Section]) -> TypeAdapter[_Section]:
    """The cached validator for a kind of section."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def validated(kind: type[_Section], values: object) -> _Section:
    """The section with ``values``, by the keys' names in a file. Raises ``ValidationError``."""
    return adapter(kind).validate_python(kind.completed(values))
