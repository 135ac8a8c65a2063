"""What every table of the configuration file is made of."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Strict
from pydantic_core import PydanticCustomError

WholeNumber = Annotated[int, Strict()]
"""An integer and nothing that could be read as one."""


class Section(BaseModel):
    """One table of the configuration file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def wrong(at: str, what: str, mend: str) -> PydanticCustomError:
    """An error about the key ``at``, relative to the model that raises it."""
    return PydanticCustomError("rule", "{what}: {mend}", {"at": at, "what": what, "mend": mend})
