"""What every table of the configuration file is made of."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, ClassVar

from federator.config.held.models import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PydanticCustomError,
    Strict,
    StringConstraints,
    held,
)
from federator.errors import ConfigError
from federator.protocol.types import BROKER_ID_MAX

WholeNumber = Annotated[int, Strict()]
"""An integer and nothing that could be read as one."""

BrokerNumber = Annotated[int, Strict(), Field(ge=0, le=BROKER_ID_MAX)]
"""A broker's id in the federation."""

Switch = Annotated[bool, Strict()]
"""``true`` or ``false`` and nothing that could be read as one."""

NAME_MAX = 64
Name = Annotated[str, StringConstraints(pattern=rf"^[A-Za-z0-9_.-]{{1,{NAME_MAX}}}$")]
"""A name that stands in topics: of a federation, or of a gateway."""


class Takes(Enum):
    """What a change of a key takes to be followed. Said of a section, it holds for all its keys
    that say nothing; where nothing is said at all, it is a restart.
    """

    RELOAD = "a reload"
    RESTART = "a restart"


@dataclass(frozen=True, slots=True)
class Change:
    """One key, as people write it, whose value in a file is not the one in effect."""

    key: str
    before: str
    after: str
    takes: Takes

    def __str__(self) -> str:
        return f"{self.key}: {self.before} -> {self.after}"


class Section(BaseModel):
    """One table of the configuration file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    told_apart_by: ClassVar[str] = "url"
    """The key by which entries of a list of these are told apart."""

    def __reduce__(self) -> tuple[Callable[..., BaseModel], tuple[object, ...]]:
        kind = type(self)
        values = {name: getattr(self, name) for name in kind.model_fields}
        return held, (kind, values, set(self.model_fields_set))

    def clash(self, key: str, relation: str, other: str, mend: str) -> PydanticCustomError:
        """An error about ``key``, whose value does not go with that of ``other``."""
        what = f"{key} = {getattr(self, key)} is {relation} {other} = {getattr(self, other)}"
        return wrong(key, what, mend)


def readable_by(parse: Callable[[str], object]) -> AfterValidator:
    """A validator of texts: ``parse`` takes them, or raises ValueError with ``what: mend``."""

    def checked(text: str) -> str:
        try:
            parse(text)
        except ValueError as error:
            what, _, mend = str(error).partition(": ")
            told = {"what": what, "mend": mend}
            raise PydanticCustomError("rule", "{what}: {mend}", told) from error
        return text

    return AfterValidator(checked)


def unusable(text: str) -> ConfigError:
    """``text`` as the one line with which a daemon refuses to start."""
    return ConfigError(text, exit_code=os.EX_CONFIG)


def wrong(at: str, what: str, mend: str) -> PydanticCustomError:
    """An error about the key ``at``, relative to the model that raises it."""
    return PydanticCustomError("rule", "{what}: {mend}", {"at": at, "what": what, "mend": mend})
