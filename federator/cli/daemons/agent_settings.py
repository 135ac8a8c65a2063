"""What ``federator run`` reads, in a process of its own (``config.reader_process``)."""

from pathlib import Path

from federator.cli.options import named, settings_from
from federator.config.reading import load_former
from federator.config.settings import Settings


def settings_of(config: Path | None) -> tuple[Settings, Settings | None]:
    """The settings of an agent, complete enough to start, and those that ``former`` names."""
    settings = settings_from(config)
    settings.require(named(config))
    return settings, None if settings.former is None else load_former(settings)
