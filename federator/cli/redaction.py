"""What a configuration keeps secret, and how to strike it out of any text.

Masking what is known to be a secret where it stands is not enough: a log or an error may repeat
it. So all texts are searched for every secret, in each form in which it may have been written.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from pydantic import BaseModel, SecretStr

STRUCK: Final = b"[REDACTED]"
CHARACTERS_MIN: Final = 4
"""Shorter secrets would be found everywhere, and strike out what is none."""

KEY_FILE_BYTES_MAX: Final = 1_048_576
SECRET_FILES: Final = ("password_file", "key_file", "agent_file")
"""Keys of the configuration that name files with secrets."""
SECRETS_IN_PAPERS: Final = ("signing", "exchange", "secret")
"""Of ``protocol.trust.papers``."""


def secrets_of(settings: BaseModel) -> set[str]:
    """Every secret that ``settings`` hold or name a file of, if that can be read."""
    found: set[str] = set()
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            found.add(value.get_secret_value())
        elif isinstance(value, BaseModel):
            found |= secrets_of(value)
        elif isinstance(value, tuple):
            for item in value:
                if isinstance(item, BaseModel):
                    found |= secrets_of(item)
        elif isinstance(value, Path) and name in SECRET_FILES:
            found |= set(_in_file(value))
    return found


def _in_file(path: Path) -> Iterator[str]:
    """The secrets of a key file of ours; of any other file all, and each line that says something.

    A key file of ours names the federation as well, which is no secret and stands everywhere.
    """
    try:
        with path.open("rb") as file:
            content = file.read(KEY_FILE_BYTES_MAX)
    except OSError:
        return
    try:
        paper = json.loads(content)
    except ValueError:
        paper = None
    if isinstance(paper, dict):
        yield from (str(paper[name]) for name in SECRETS_IN_PAPERS if name in paper)
        return
    text = content.decode("utf-8", errors="replace")
    yield text.strip("\r\n")
    yield from (line for line in text.splitlines() if not line.startswith("-----"))


def strike(content: bytes, secrets: Iterable[str]) -> bytes:
    """``content`` without any of ``secrets``, however they were written there."""
    forms: set[bytes] = set()
    for secret in secrets:
        if len(secret) >= CHARACTERS_MIN:
            shapes = (
                secret,
                json.dumps(secret)[1:-1],
                json.dumps(secret, ensure_ascii=False)[1:-1],
                repr(secret)[1:-1],
                quote(secret, safe=""),
            )
            forms |= {shape.encode("utf-8", errors="replace") for shape in shapes}
    for form in sorted(forms, key=len, reverse=True):
        content = content.replace(form, STRUCK)
    return content
