"""Applies changes of a configuration to a running daemon: which keys differ, and which take effect.

Each key declares what a change needs, a reload or a restart (``section.Takes``). A reload replaces
the keys that need no more; the others keep their values until a restart. The result is checked by
the rules between keys: keys that agree in the new file may conflict with old values.

Entries of a list are identified by one key, mostly ``url``. A reload adds and removes entries of a
list that is marked with it; where only keys of the entries are, it changes these keys, and added
and removed entries wait for a restart.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from federator.config.brokers import Secret
from federator.config.section import (
    Change,
    Key,
    RuleError,
    Section,
    Takes,
    keys_of,
    tables_of,
    unusable,
)

SHOWN_CHARACTERS_MAX: Final = 60

_Root = TypeVar("_Root", bound=Section)
_Entries = Mapping[str, Section]


def takes(key: Key, otherwise: Takes = Takes.RESTART) -> Takes:
    """What a change of ``key`` needs; ``otherwise`` is the default of its section."""
    return next((rule for rule in key.rules if isinstance(rule, Takes)), otherwise)


def differences(
    old: Section, new: Section, *, at: str = "", otherwise: Takes = Takes.RESTART
) -> Iterator[Change]:
    """Every key with another value in ``new``, in the order of the reference."""
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
    """``old`` with those keys of ``new`` that need only a reload.

    Raises ``ConfigError``: the combination is invalid.
    """
    try:
        return _together(old, new, Takes.RESTART)
    except RuleError as error:
        raise unusable(f"with keys that wait for a restart as they are now: {error}") from None


def reloaded(old: _Root, new: _Root) -> tuple[_Root, list[Change], list[Change]]:
    """The settings after a reload of ``new``, what it changes, and what needs a restart.

    Raises as ``merged``.
    """
    settings = merged(old, new)
    later = differences(settings, new)
    waiting = [change for change in later if change.takes is Takes.RESTART]
    return settings, list(differences(old, settings)), waiting


def taken_by_reload(root: type[Section]) -> Iterator[str]:
    """The keys and sections that a reload changes, for people: ``rules but rename``."""
    for name, info in keys_of(root).items():
        how, inner = takes(info), tables_of(info)
        fields = {} if inner is None else keys_of(inner)
        keys = {key: takes(field, how) for key, field in fields.items()}
        if how is Takes.RELOAD:
            others = ", ".join(key for key, way in keys.items() if way is Takes.RESTART)
            yield f"{name} but {others}" if others else name
        else:
            yield from (f"{name}.{key}" for key, way in keys.items() if way is Takes.RELOAD)


def _entries_that_differ(
    key: str, before: _Entries, after: _Entries, how: Takes
) -> Iterator[Change]:
    for name in (name for name in before if name not in after):
        yield Change(f"{key}[{name}]", "named", "not named", how)
    for name, entry in after.items():
        at = f"{key}[{name}]"
        if name not in before:
            yield Change(at, "not named", "named", how)
            if how is Takes.RESTART:
                continue
        found = differences(_entry_before(entry, name, before), entry, at=f"{at}.", otherwise=how)
        yield from (change for change in found if name in before or change.takes is Takes.RESTART)


def _together(old: _Root, new: _Root, otherwise: Takes) -> _Root:
    """As ``merged``. Raises ``RuleError``."""
    values: dict[str, Any] = {}
    for key in keys_of(type(old)).values():
        how = takes(key, otherwise)
        before, after = getattr(old, key.attribute), getattr(new, key.attribute)
        if isinstance(before, Section) and isinstance(after, Section):
            values[key.attribute] = _together(before, after, how)
        elif (entries := _entries(before, after, how)) is not None:
            old_entries, new_entries = entries
            stay = new_entries if how is Takes.RELOAD else old_entries
            values[key.attribute] = tuple(
                _together(
                    _entry_before(entry, name, old_entries), new_entries.get(name, entry), how
                )
                for name, entry in stay.items()
            )
        elif how is Takes.RELOAD:
            values[key.attribute] = after
    return replace(old, **values)


def _entries(before: object, after: object, how: Takes) -> tuple[_Entries, _Entries] | None:
    """Two lists of tables as mappings by their identifying key; ``None``: compare them as a
    whole."""
    if not isinstance(before, tuple) or not isinstance(after, tuple):
        return None
    if not all(_is_entry(entry, how) for entry in (*before, *after)):
        return None
    before_by_name, after_by_name = (
        {_name(entry): entry for entry in entries} for entries in (before, after)
    )
    return before_by_name, after_by_name


def _is_entry(value: object, how: Takes) -> bool:
    if not isinstance(value, Section) or not hasattr(value, value.entry_key):
        return False
    keys = keys_of(type(value)).values()
    return how is Takes.RELOAD or any(takes(key) is Takes.RELOAD for key in keys)


def _name(entry: Section) -> str:
    return str(getattr(entry, entry.entry_key))


def _entry_before(entry: Section, name: str, before: _Entries) -> Section:
    """The former version of ``entry``: one with only its identifying key if it is new."""
    key = entry.entry_key
    return before.get(name) or type(entry)(**{key: getattr(entry, key)})


def _shown(value: object) -> str:
    """A value for people, without secrets, and with long lists cut."""
    if value is None or value == ():
        return "none"
    if isinstance(value, Secret):
        return "a secret"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        inner = ", ".join(_shown(item) for item in value[:8])
        value = f"[{inner}{', ...' if len(value) > 8 else ''}]"
    elif isinstance(value, Section):
        value = "a table"
    text = "".join(c if c.isprintable() else "?" for c in str(value))
    cut = SHOWN_CHARACTERS_MAX
    return text if len(text) <= cut else f"{text[:cut]}..."
