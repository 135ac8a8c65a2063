"""``federator plan``: routes under limited bandwidth. Needs the extra ``planner``."""

import sys

from federator.errors import FederatorError

_EXTRA = frozenset({"highspy", "numpy", "scipy", "topohub"})
"""Packages of the extra: any may be missing, no other."""


class MissingExtraError(FederatorError):
    """The package was installed without what this verb needs."""


try:
    from federator.cli.planning import command
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in _EXTRA:
        raise
    for name in [name for name in sys.modules if name.startswith("federator.planner.")]:
        del sys.modules[name]
    raise MissingExtraError(
        f"plan: {error.name} is not installed: run pip install federator[planner]"
    ) from None

__all__ = ["command"]
