"""What the verbs share that read all brokers of a federation: where they begin."""

import os
from collections.abc import Sequence
from pathlib import Path

import click

from federator.config.all_brokers.collector import FollowingSettings

broker_option = click.option(
    "--broker",
    "brokers",
    multiple=True,
    metavar="URL",
    help="A broker to begin with, mqtt://HOST[:PORT], mqtts://, ws:// or wss://; any one finds the "
    "others. May be given more than once.",
)
only_option = click.option(
    "--only", is_flag=True, help="Keep to the brokers given; look for no others."
)
check_option = click.option("--check", is_flag=True, help="Read the configuration and stop there.")


def file_or_usual(config: Path | None, variable: str, usual: Path) -> Path | None:
    """The file that was named, by option or environment; else the usual one, where it exists."""
    if config is not None:
        return config
    if named := os.environ.get(variable):
        return Path(named)
    return usual if usual.exists() else None


def require_broker(config: Path | None, brokers: Sequence[str]) -> None:
    """Raise ``UsageError`` when nothing names a broker."""
    if config is None and not brokers and "FEDERATOR_BROKERS" not in os.environ:
        raise click.UsageError("--broker URL is missing, and there is no configuration")


def usable(settings: FollowingSettings) -> str:
    """What ``--check`` says of a configuration that was read."""
    return (
        f"from {', '.join(broker.url for broker in settings.brokers)}: "
        "the configuration can be used"
    )
