"""What settings are made of: pydantic's models, or in an agent's own process what stands in.

pydantic and the validators that it makes of our settings take 17 MB, and are used for a moment when
an agent starts. So a process that is started with ``-X federator_held`` never imports them: its
settings are validated in another one, and handed over by pickle (``elsewhere``). They have the same
classes with the same methods there; what validates is left out of these.
"""

import copyreg
import sys
from typing import TYPE_CHECKING, Any, Final

from federator.config.held import stand_ins

OPTION: Final = "federator_held"
"""Of the interpreter: ``-X federator_held``."""

VALIDATES: Final = OPTION not in sys._xoptions
"""Whether this process has pydantic, and can tell what a configuration may be."""

if TYPE_CHECKING or VALIDATES:
    from pydantic import (
        AfterValidator,
        BaseModel,
        BeforeValidator,
        ConfigDict,
        Field,
        SecretStr,
        Strict,
        StringConstraints,
        model_validator,
    )
    from pydantic_core import PydanticCustomError
else:
    AfterValidator = BeforeValidator = Strict = StringConstraints = stand_ins.Constraint
    BaseModel = stand_ins.BaseModel
    ConfigDict = dict
    Field = stand_ins.field
    PydanticCustomError = ValueError
    SecretStr = stand_ins.SecretStr
    model_validator = stand_ins.model_validator

__all__ = [
    "OPTION",
    "VALIDATES",
    "AfterValidator",
    "BaseModel",
    "BeforeValidator",
    "ConfigDict",
    "Field",
    "PydanticCustomError",
    "SecretStr",
    "Strict",
    "StringConstraints",
    "held",
    "model_validator",
]


def held(kind: type[BaseModel], values: dict[str, Any], told: set[str]) -> BaseModel:
    """A ``kind`` of ``values`` that were validated, of which ``told`` are no defaults."""
    if not VALIDATES:
        return kind.model_construct(told, **values)
    new = kind.__new__(kind)
    state = {"__dict__": values, "__pydantic_fields_set__": told}
    new.__setstate__({**state, "__pydantic_extra__": None, "__pydantic_private__": None})
    return new


def _secret(text: str) -> SecretStr:
    return SecretStr(text)


copyreg.pickle(SecretStr, lambda secret: (_secret, (secret.get_secret_value(),)))
