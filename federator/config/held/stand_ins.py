"""What stands in for pydantic where settings are only held.

As much of it as our settings use once they are validated: values by their names, copies with other
values, equality, and secrets that do not show. Nothing is validated here.
"""

from collections.abc import Callable, Mapping
from inspect import get_annotations
from typing import Any, ClassVar, Final, NoReturn, Self, TypeVar, get_origin

_Function = TypeVar("_Function")

_MISSING: Final = object()


class Constraint:
    """Where a type says what its values may be: nobody asks here."""

    __slots__ = ()

    def __init__(self, *_: object, **__: object) -> None:
        pass


class FieldInfo:
    """A key: its default and its name in files, where that is another one."""

    __slots__ = ("alias", "default")

    def __init__(self, default: Any = _MISSING, alias: str | None = None) -> None:  # noqa: ANN401
        self.default = default
        self.alias = alias


def field(default: Any = _MISSING, *, alias: str | None = None, **_: object) -> Any:  # noqa: ANN401
    """As ``pydantic.Field``."""
    return FieldInfo(default, alias)


def model_validator(*, mode: str) -> Callable[[_Function], _Function]:
    """As pydantic's: what is so decorated is never called here."""
    del mode
    return lambda function: function


class BaseModel:
    """Named values that stay as they are."""

    model_fields: ClassVar[dict[str, FieldInfo]] = {}
    model_fields_set: set[str]

    def __init_subclass__(cls) -> None:
        fields: dict[str, FieldInfo] = {}
        for base in reversed(cls.__mro__[1:]):
            fields |= base.__dict__.get("model_fields", {})
        annotation: Any
        for name, annotation in get_annotations(cls).items():
            if get_origin(annotation) is ClassVar:
                continue
            default = cls.__dict__.get(name, _MISSING)
            fields[name] = default if isinstance(default, FieldInfo) else FieldInfo(default)
            if default is not _MISSING:
                delattr(cls, name)
        cls.model_fields = fields

    def __init__(self, **told: object) -> None:
        fields = type(self).model_fields
        names = {info.alias or name: name for name, info in fields.items()}
        if unknown := told.keys() - names.keys():
            raise TypeError(f"{type(self).__name__} has no {sorted(unknown)}")
        self._hold({names[key]: value for key, value in told.items()}, None)

    @classmethod
    def model_construct(cls, _fields_set: set[str] | None = None, **values: object) -> Self:
        """One of ``values`` and defaults; ``_fields_set`` names those that are no defaults."""
        new = cls.__new__(cls)
        new._hold(values, _fields_set)
        return new

    def model_copy(self, *, update: Mapping[str, object]) -> Self:
        """The same with other values."""
        values = {name: self.__dict__[name] for name in type(self).model_fields}
        return self.model_construct(self.model_fields_set | update.keys(), **{**values, **update})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise TypeError(f"{type(self).__name__} stays as it is")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        names = type(self).model_fields
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in type(self).model_fields))

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self).model_fields)
        return f"{type(self).__name__}({told})"

    def _hold(self, values: Mapping[str, object], told: set[str] | None) -> None:
        held = self.__dict__
        for name, info in type(self).model_fields.items():
            held[name] = value = values.get(name, info.default)
            if value is _MISSING:
                raise TypeError(f"{type(self).__name__} lacks {name}")
        held["model_fields_set"] = set(values) if told is None else told


class SecretStr:
    """A text that does not show."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def get_secret_value(self) -> str:
        """The text."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretStr) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "SecretStr('**********')" if self._text else "SecretStr('')"

    __str__ = __repr__
