"""What may change while a daemon runs: which keys differ, and what of a new file is in effect.

Each key says what a change of it takes, a reload or a restart (``section.Takes``). A reload puts
the keys that take no more in the place of those in effect; the others go on as they were, and wait.
What comes of it is checked by the rules between keys: keys that agree in a file need not agree with
those that wait.

Entries of a list are told apart by one key, their ``url`` mostly. A list that takes a reload may
gain and lose entries by it; where only keys of its entries do, these change, and other entries wait
for a restart.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar, get_args

from federator.config.brokers import Secret
from federator.config.section import (
    Change,
    Key,
    RuleError,
    Section,
    Takes,
    keys_of,
    section_in,
    unusable,
)

SHOWN_CHARACTERS_MAX: Final = 60

_Root = TypeVar("_Root", bound=Section)
_Entries = Mapping[str, Section]


def takes(key: Key, otherwise: Takes = Takes.RESTART) -> Takes:
    """What a change of a key takes; ``otherwise`` is said of what holds it."""
    return next((each for each in key.rules if isinstance(each, Takes)), otherwise)


def differences(
    old: Section, new: Section, *, at: str = "", otherwise: Takes = Takes.RESTART
) -> Iterator[Change]:
    """Every key whose value differs in ``new``, in the order of the reference."""
    for name, info in keys_of(type(old)).items():
        before, after = getattr(old, info.attribute), getattr(new, info.attribute)
        if before == after:
            continue
        key, how = at + name, takes(info, otherwise)
        if isinstance(before, Section) and isinstance(after, Section):
            yield from differences(before, after, at=f"{key}.", otherwise=how)
        elif (entries := _entries(before, after, how)) is not None:
            yield from _entries_that_differ(key, *entries, how)
        else:
            yield Change(key, _shown(before), _shown(after), how)


def merged(old: _Root, new: _Root) -> _Root:
    """The keys of ``new`` that take a reload, all others as they are in ``old``.

    Raises ``ConfigError``: together they are no configuration.
    """
    try:
        return _together(old, new, Takes.RESTART)
    except RuleError as error:
        raise unusable(f"with keys that wait for a restart as they are now: {error}") from None


def reloaded(old: _Root, new: _Root) -> tuple[_Root, list[Change], list[Change]]:
    """What is in effect once ``new`` was read, what changes by that, and what takes a restart.

    Raises as ``merged``.
    """
    settings = merged(old, new)
    later = differences(settings, new)
    waiting = [each for each in later if each.takes is Takes.RESTART]
    return settings, list(differences(old, settings)), waiting


def taken_by_reload(root: type[Section]) -> Iterator[str]:
    """The keys and sections that a reload takes up, for people: ``rules but rename``."""
    for name, info in keys_of(root).items():
        how, inner = takes(info), _section(info)
        fields = {} if inner is None else keys_of(inner)
        keys = {key: takes(field, how) for key, field in fields.items()}
        if how is Takes.RELOAD:
            others = ", ".join(key for key, each in keys.items() if each is Takes.RESTART)
            yield f"{name} but {others}" if others else name
        else:
            yield from (f"{name}.{key}" for key, each in keys.items() if each is Takes.RELOAD)


def _section(key: Key) -> type[Section] | None:
    """The section that a key holds, alone or as entries of a list."""
    kinds = (key.kind, *get_args(key.kind))
    return next(filter(None, map(section_in, kinds)), None)


def _entries_that_differ(
    key: str, known: _Entries, wanted: _Entries, how: Takes
) -> Iterator[Change]:
    for name in (name for name in known if name not in wanted):
        yield Change(f"{key}[{name}]", "named", "not named", how)
    for name, entry in wanted.items():
        at = f"{key}[{name}]"
        if name not in known:
            yield Change(at, "not named", "named", how)
            if how is Takes.RESTART:
                continue
        found = differences(_known(entry, name, known), entry, at=f"{at}.", otherwise=how)
        yield from (each for each in found if name in known or each.takes is Takes.RESTART)


def _together(old: _Root, new: _Root, otherwise: Takes) -> _Root:
    """As ``merged``. Raises ``RuleError``."""
    values: dict[str, Any] = {}
    for key in keys_of(type(old)).values():
        how = takes(key, otherwise)
        before, after = getattr(old, key.attribute), getattr(new, key.attribute)
        if isinstance(before, Section) and isinstance(after, Section):
            values[key.attribute] = _together(before, after, how)
        elif (entries := _entries(before, after, how)) is not None:
            known, wanted = entries
            stay = wanted if how is Takes.RELOAD else known
            values[key.attribute] = tuple(
                _together(_known(entry, each, known), wanted.get(each, entry), how)
                for each, entry in stay.items()
            )
        elif how is Takes.RELOAD:
            values[key.attribute] = after
    return replace(old, **values)


def _entries(before: object, after: object, how: Takes) -> tuple[_Entries, _Entries] | None:
    """Two lists of tables by what tells them apart; ``None``: a reload concerns no single one."""
    if not isinstance(before, tuple) or not isinstance(after, tuple):
        return None
    if not all(_is_entry(each, how) for each in (*before, *after)):
        return None
    known, wanted = ({_name(each): each for each in entries} for entries in (before, after))
    return known, wanted


def _is_entry(value: object, how: Takes) -> bool:
    if not isinstance(value, Section) or not hasattr(value, value.told_apart_by):
        return False
    keys = keys_of(type(value)).values()
    return how is Takes.RELOAD or any(takes(each) is Takes.RELOAD for each in keys)


def _name(entry: Section) -> str:
    return str(getattr(entry, entry.told_apart_by))


def _known(entry: Section, name: str, known: _Entries) -> Section:
    """What was known of ``entry`` before: nothing but its name where it is new."""
    key = entry.told_apart_by
    return known.get(name) or type(entry)(**{key: getattr(entry, key)})


def _shown(value: object) -> str:
    """A value for people; never a secret, nor a long list."""
    if value is None or value == ():
        return "none"
    if isinstance(value, Secret):
        return "a secret"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        inner = ", ".join(_shown(each) for each in value[:8])
        value = f"[{inner}{', ...' if len(value) > 8 else ''}]"
    elif isinstance(value, Section):
        value = "a table"
    text = "".join(c if c.isprintable() else "?" for c in str(value))
    cut = SHOWN_CHARACTERS_MAX
    return text if len(text) <= cut else f"{text[:cut]}..."
