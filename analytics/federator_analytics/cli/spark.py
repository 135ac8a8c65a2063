"""Options that say where Spark runs and how large it is, checked before Java is started.

Spark and Java answer a wrong one with a page of Java. The forms are those of Spark's own
``SparkMasterRegex``, and of Java's ``-Xmx``.
"""

import re
from collections.abc import Callable
from typing import TypeVar

import click

_MASTER = re.compile(
    r"local|local\[([1-9][0-9]*|\*)(\s*,\s*[0-9]+)?\]|yarn|(spark|k8s)://.*"
    r"|local-cluster\[\s*[1-9][0-9]*\s*,\s*[1-9][0-9]*\s*,\s*[1-9][0-9]*\s*\]"
)
_MEMORY = re.compile(r"([1-9][0-9]*)([kmgt])", re.IGNORECASE)
_MIB = {"k": 2**-10, "m": 1, "g": 2**10, "t": 2**20}
_Verb = TypeVar("_Verb", bound=Callable[..., object])
MEMORY_MIB_MIN = 512
"""With less than 450 MiB of heap, which a Java of this size has, Spark does not start."""


def memory_option(name: str, about: str) -> Callable[[_Verb], _Verb]:
    return click.option(name, type=Memory(), default="2g", show_default=True, help=about)


class Master(click.ParamType[str]):
    """A master that Spark knows."""

    name = "master"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if _MASTER.fullmatch(value) is None:
            wanted = "local, local[N], spark://HOST:PORT, yarn or k8s://HOST:PORT is wanted"
            self.fail(f"{value}: {wanted}", param, ctx)
        return value


class Memory(click.ParamType[str]):
    """The size of a Java, as its ``-Xmx`` takes it."""

    name = "size"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = _MEMORY.fullmatch(value)
        if found is None or int(found[1]) * _MIB[found[2].lower()] < MEMORY_MIB_MIN:
            wanted = f"a whole number with m or g, such as 2g, from {MEMORY_MIB_MIN}m on, is wanted"
            self.fail(f"{value}: {wanted}", param, ctx)
        return value
