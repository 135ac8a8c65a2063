"""The walks of docs/ARCHITECTURE.md: its "ways through the house", each a list of functions."""

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any, Final

CHECKOUT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = CHECKOUT / "docs" / "ARCHITECTURE.md"

_CHAPTER: Final = "## Four ways through the house"
_STEP: Final = re.compile(r"^\d+\. `([\w.]+)`")
_PRODUCT: Final = "federator"
_OTHERS: Final = ("lab.", f"{_PRODUCT}.", f"{_PRODUCT}_analytics.")


def resolve(name: str) -> Any:  # noqa: ANN401  # a module, a class or a function
    """What a page names; ``federator.`` may be left out. Raises when there is none."""
    parts = (name if name.startswith(_OTHERS) else f"{_PRODUCT}.{name}").split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


def walks() -> dict[str, list[str]]:
    """Title to the names of the functions that a walk passes, in their order."""
    _, _, rest = PAGE.read_text("utf-8").partition(_CHAPTER)
    chapter, _, _ = rest.partition("\n## ")
    found = {}
    for block in chapter.split("\n### ")[1:]:
        title, *lines = block.splitlines()
        found[title] = [step[1] for line in lines if (step := _STEP.match(line))]
    return found


def place(step: str) -> tuple[str, str]:
    """File and qualified name of a step's code, by which a trace knows it."""
    code = inspect.unwrap(resolve(step)).__code__
    return code.co_filename, code.co_qualname
