"""``federator-lab console-pictures`` and ``console-fluidity``: the console as people see it."""

import asyncio
import tempfile
from pathlib import Path

import click

from federator.cli.options import PLACE, columns, json_option
from lab.console.fluidity import measure
from lab.console.pictures import take
from lab.frame.printing import log_to_standard_error, tell


@click.command(name="console-pictures")
@click.argument("folder", type=PLACE)
@json_option
def pictures(folder: Path, as_json: bool) -> None:
    """Take pictures of a console before nine real brokers, as PNG files into FOLDER.

    In four states: calm, congested, dead (a broker was killed), refused (a stranger tried to sign
    in); each on a desktop and a phone, light and dark. Says how long the killed broker took to be
    red.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log_to_standard_error()
    with tempfile.TemporaryDirectory() as scratch:
        told = asyncio.run(take(folder, Path(scratch)))
    lines = [f"{folder}: calm.png congested.png dead.png refused.png, and each as"]
    lines.append("  NAME-dark.png NAME-phone.png NAME-phone-dark.png")
    lines.append(f"a killed broker was red after {told['red_s']:.2f} s")
    tell(lines, told, as_json=as_json)


@click.command(name="console-fluidity")
@click.option("--brokers", type=click.IntRange(2, 1_000), default=200, show_default=True)
@click.option("--links", type=click.IntRange(1, 16_000), default=2_000, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@json_option
def fluidity(brokers: int, links: int, seed: int, as_json: bool) -> None:
    """Measure the time between frames in Chromium, of a map that large that changes all the time.

    The agents' answers are made up, 100 a second; console, page and browser are real.
    """
    if not brokers - 1 <= links <= brokers * (brokers - 1) // 2:
        raise click.BadParameter("so many links cannot be between these", param_hint="--links")
    found, page = asyncio.run(measure(brokers, links, seed=seed))
    begun = (
        f"{page['brokers']} brokers, {page['links']} links, first drawn {page['drawn_ms']} ms "
        f"after the page was asked for"
    )
    rows: list[tuple[str, ...]] = [("map", "frames", "half within", "95 %", "99 %", "longest")]
    for each in found:
        times = [each.quantile(share) for share in (0.5, 0.95, 0.99, 1.0)]
        told = [f"{time:.1f} ms" for time in times]
        rows.append((each.moved, str(len(each.times_ms)), *told))
    complaints = (f"the page complains: {line}" for line in page["wrong"])
    tell([begun, *columns(rows), *complaints], {**page, "frames": found}, as_json=as_json)
