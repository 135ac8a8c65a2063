"""What every table of the configuration file is made of."""

import os
from collections.abc import Callable
from enum import Enum
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, StringConstraints
from pydantic_core import PydanticCustomError

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


class Section(BaseModel):
    """One table of the configuration file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    told_apart_by: ClassVar[str] = "url"
    """The key by which entries of a list of these are told apart."""

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
