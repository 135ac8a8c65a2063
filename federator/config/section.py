"""The base of every table of the configuration file: a frozen dataclass.

Types restrict single values (``annotated_types``, ``Core``, ``Passes``), ``__post_init__`` checks
combinations. pydantic checks the types in the process that reads a file (``validation``); no module
of the tables imports it, so agents do not need it.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, dataclass_transform, get_args, get_origin

from annotated_types import Interval

from federator.errors import ConfigError
from federator.protocol.types import BROKER_ID_MAX


class Core:
    """A constraint of pydantic's core schema, where ``annotated_types`` has none."""

    def __init__(self, **constraints: object) -> None:
        self.constraints = constraints

    def __get_pydantic_core_schema__(self, kind: object, handler: Callable[..., Any]) -> Any:  # noqa: ANN401 - pydantic's own
        return handler(kind) | self.constraints


@dataclass(frozen=True, slots=True)
class Passes:
    """A value is passed through ``function``, which raises ``ValueError`` with ``what: mend``.

    Attributes:
        raw: Call ``function`` before the type is checked.
    """

    function: Callable[[Any], object]
    raw: bool = False

    def __get_pydantic_core_schema__(self, kind: object, handler: Callable[..., Any]) -> Any:  # noqa: ANN401 - pydantic's own
        call = {"type": "no-info", "function": self.function}
        way = "function-before" if self.raw else "function-after"
        return {"type": way, "function": call, "schema": handler(kind)}


STRICT: Final = Core(strict=True)

WholeNumber = Annotated[int, STRICT]
"""An integer; no value is converted to one."""

BrokerNumber = Annotated[int, STRICT, Interval(ge=0, le=BROKER_ID_MAX)]
"""A broker's id in the federation."""

Switch = Annotated[bool, STRICT]
"""``true`` or ``false``; no value is converted to one."""

NAME_MAX = 64
Name = Annotated[str, Core(pattern=rf"^[A-Za-z0-9_.-]{{1,{NAME_MAX}}}$")]
"""A name that stands in topics: of a federation, or of a gateway."""


class Takes(Enum):
    """What makes a change of a key effective. On a section it is the default for its keys; the
    default of all is a restart.
    """

    RELOAD = "a reload"
    RESTART = "a restart"


class SecretFile(Enum):
    """What the file holds that a key names: it must be closed to other users."""

    KEY = "a key"
    PASSWORD = "a password in the first line"


Location = tuple[str | int, ...]
"""The keys and indices that lead to a value."""


@dataclass(frozen=True, slots=True)
class Change:
    """A key, as people write it, with a value in the file that differs from the one in effect."""

    key: str
    before: str
    after: str
    takes: Takes

    def __str__(self) -> str:
        return f"{self.key}: {self.before} -> {self.after}"


def _name_in_files(attribute: str) -> str:
    return {"imports": "import", "exports": "export"}.get(attribute, attribute)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Section:
    """One table of the configuration file."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    __pydantic_config__: ClassVar = {
        "extra": "forbid",
        "hide_input_in_errors": True,
        "alias_generator": _name_in_files,
    }

    entry_key: ClassVar[str] = "url"
    """The key that identifies an entry in a list of these."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True, eq=False, repr=False)(cls)

    # Once here instead of once for each section: 0.2 MB of an agent.
    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(frozenset(vars(self).items()))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"

    def __post_init__(self) -> None:
        """Check rules between keys; raises ``RuleError``."""

    @classmethod
    def completed(cls, values: Any) -> Any:  # noqa: ANN401 - whatever a file holds
        """Return the file's ``values``, which may have any form, with defaults that depend on other
        keys."""
        return values

    def clash(self, key: str, relation: str, other: str, mend: str) -> "RuleError":
        """An error about ``key``: its value conflicts with that of ``other``."""
        what = f"{key} = {getattr(self, key)} is {relation} {other} = {getattr(self, other)}"
        return wrong(key, what, mend)


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section.

    Attributes:
        attribute: Its name in code.
        kind: Its type, without ``rules``, the constraints.
        default: ``MISSING``: it is required.
    """

    attribute: str
    kind: Any
    rules: tuple[object, ...]
    default: Any


def keys_of(section: type[Section]) -> dict[str, Key]:
    """The keys of a section by their names in files."""
    found = {}
    for attribute in fields(section):
        kind, *rules = (
            get_args(attribute.type)
            if get_origin(attribute.type) is Annotated
            else (attribute.type,)
        )
        found[_name_in_files(attribute.name)] = Key(
            attribute.name, kind, tuple(rules), attribute.default
        )
    return found


def section_in(kind: object) -> type[Section] | None:
    """``kind`` if it is a section."""
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def tables_of(key: Key) -> type[Section] | None:
    """The section that ``key`` holds, alone or as entries of a list."""
    kinds = (key.kind, *get_args(key.kind))
    return next(filter(None, map(section_in, kinds)), None)


def tables_in(section: Section, at: Location = ()) -> Iterator[tuple[Location, Section]]:
    """``section``, which is ``at`` that place, and all tables inside it."""
    yield at, section
    for name, key in keys_of(type(section)).items():
        value = getattr(section, key.attribute)
        if isinstance(value, Section):
            yield from tables_in(value, (*at, name))
        elif isinstance(value, tuple):
            for index, entry in enumerate(value):
                if isinstance(entry, Section):
                    yield from tables_in(entry, (*at, name, index))


def secret_files(section: Section) -> Iterator[tuple[str, SecretFile, Path]]:
    """The keys of ``section`` that name files with secrets, and these files."""
    for name, key in keys_of(type(section)).items():
        path = getattr(section, key.attribute)
        if path is not None:
            yield from ((name, rule, path) for rule in key.rules if isinstance(rule, SecretFile))


def readable_by(parse: Callable[[str], object]) -> Passes:
    """A constraint on texts: ``parse`` must accept them, or raises ValueError with ``what:
    mend``."""

    def checked(text: str) -> str:
        parse(text)
        return text

    return Passes(checked)


def unusable(text: str) -> ConfigError:
    """``text`` as the one line with which a daemon refuses to start."""
    return ConfigError(text, exit_code=os.EX_CONFIG)


class RuleError(ValueError):
    """A value breaks a rule: ``what: mend``.

    Attributes:
        at: Its key, relative to the section that raises this.
    """

    def __init__(self, text: str, at: str) -> None:
        super().__init__(text)
        self.at = at


def wrong(at: str, what: str, mend: str) -> RuleError:
    """An error about the key ``at``, relative to the section that raises it."""
    return RuleError(f"{what}: {mend}", at)
