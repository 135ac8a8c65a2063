"""A dataclass of settings is the options of its verb: one for each field, by name and type."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

import click

from federator.cli.options import FILE

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Settings = TypeVar("_Settings", bound="DataclassInstance")
_Verb = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Option:
    flag: str
    text: Any  # the default
    about: str
    bounds: tuple[float | None, float | None]
    among: Sequence[str]
    parse: Callable[[str], Any] | None
    form: str | None
    kind: Any  # of click

    def read(self, context: click.Context, option: click.Parameter, text: Any) -> Any:  # noqa: ANN401
        if self.parse is None or text is None:
            return text
        try:
            return self.parse(text)
        except ValueError as error:
            raise click.BadParameter(f"{text!r}: {error}", context, option) from None

    def type_for(self, annotation: Any) -> Any:  # noqa: ANN401  # of click
        if self.kind is not None:
            return self.kind
        if self.among:
            return click.Choice(list(self.among))
        if self.parse is not None:
            return click.STRING
        of = next(each for each in get_args(annotation) or (annotation,) if each is not NoneType)
        if of is Path:
            return FILE
        if self.bounds == (None, None):
            return of
        bounded: Any = {int: click.IntRange, float: click.FloatRange}[of]
        return bounded(*self.bounds)


def setting(
    default: Any,  # noqa: ANN401  # of any field
    about: str = "",
    least: float | None = None,
    most: float | None = None,
    *,
    option: str = "",
    among: Sequence[str] = (),
    parse: Callable[[str], Any] | None = None,
    form: str | None = None,
    kind: object = None,
) -> Any:  # noqa: ANN401  # a field of any type
    """A field of settings.

    Args:
        default: With ``parse``, as it is written on the command line.
        about: For the help.
        least, most: Bounds of a number.
        option: ``--name``, where it is not the field's.
        among: The choices; where the default is a tuple, one may be chosen again and again.
        parse: Reads the option's text. Raises ``ValueError``: what is wanted instead.
        form: How the text looks, for the help.
        kind: The type of the option, where it does not follow from the field's.
    """
    made = _Option(option, default, about, (least, most), among, parse, form, kind)
    parsed = default if parse is None or default is None else parse(default)
    return field(default=parsed, metadata={"option": made})


def options(settings: type[_Settings], *, sparse: bool = False) -> Callable[[_Verb], _Verb]:
    """Give a verb the options of ``settings``, and these as its first argument.

    ``sparse``: as a dictionary of what was given, where defaults depend on each other.
    Raises ``click.UsageError`` where the settings raise ``ValueError``.
    """
    types = get_type_hints(settings)
    chosen = {each.name: each.metadata["option"] for each in fields(settings) if each.metadata}

    def decorate(verb: _Verb) -> _Verb:
        def called(*arguments: object, **values: object) -> object:
            made = {name: values.pop(name) for name in chosen}
            if sparse:
                given = {name: value for name, value in made.items() if value is not None}
                return verb(*arguments, given, **values)
            try:
                found = settings(**made)
            except ValueError as error:
                raise click.UsageError(str(error)) from error
            return verb(*arguments, found, **values)

        made: _Verb = functools.wraps(verb)(called)
        for name, option in reversed(chosen.items()):
            made = _decorator(name, option, types[name], sparse=sparse)(made)
        return made

    return decorate


def _decorator(
    name: str,
    option: _Option,
    annotation: Any,  # noqa: ANN401  # of the field
    *,
    sparse: bool,
) -> Callable[[_Verb], _Verb]:
    flags, about = (option.flag or f"--{name.replace('_', '-')}", name), option.about
    if annotation is bool:
        return click.option(*flags, is_flag=True, help=about or None)
    many = bool(option.among) and isinstance(option.text, tuple)
    if sparse and option.text is not None:
        about = f"{about} [{option.text}]".lstrip()
    return click.option(
        *flags,
        type=option.type_for(annotation),
        default=None if many or sparse else option.text,
        show_default=not sparse,
        multiple=many,
        callback=option.read,
        metavar=option.form,
        help=about or None,
    )


def numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(each) for each in text.split(","))
    except ValueError:
        raise ValueError("numbers like 1,3 wanted") from None
