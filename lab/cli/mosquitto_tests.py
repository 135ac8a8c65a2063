"""``federator-lab mosquitto-tests``: Mosquitto's own tests of a broker, through a gateway.

Exit codes: 0 when nothing unexpected failed, 1 when something did, 69 when the tests cannot be had.
"""

import asyncio
import os
from pathlib import Path
from typing import Final

import click

from federator.cli.options import FOLDER, PLACE, option
from lab.conformance import source, suite
from lab.conformance.suite import Result
from lab.frame.printing import fields_of, folder_for, tell, until_stopped

UNEXPECTED: Final = 1
OUTPUT_LINES: Final = 12
"""Of what a test printed that failed unexpectedly."""


@click.command("mosquitto-tests")
@click.argument("names", nargs=-1)
@option("--direct", is_flag=True, help="Straight at the broker, without a gateway.")
@option("--attempts", type=click.IntRange(1, 5), default=2, help="For a test that fails, alone.")
@option("--processes", type=click.IntRange(1, 16), default=min(2, os.cpu_count() or 1))
@click.option("--source", "given", type=PLACE, help="Checkout or archive of Mosquitto v2.0.11.")
@click.option("--cache", type=FOLDER, help="Where the archive is kept. [~/.cache/federator]")
@click.option("--keep-logs", type=FOLDER, help="Keep tests and gateways' logs in this folder.")
@option("--list", "list_only", is_flag=True, help="Name the tests and known differences, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON list.")
def command(
    names: tuple[str, ...],
    direct: bool,
    attempts: int,
    processes: int,
    given: Path | None,
    cache: Path | None,
    keep_logs: Path | None,
    list_only: bool,
    as_json: bool,
) -> int:
    """Run Mosquitto's own tests of a broker with a gateway in front of it.

    119 tests: connecting, subscribing, publishing, retained values, sessions, wills, properties and
    malformed packets (groups 01 to 05, 07, 12 and 13 of v2.0.11). NAMES choose those that contain
    one of them. Debian's source package brings the tests (apt-get, which is asked with lists of its
    own; nothing of the system is changed). Of those that must fail lab/conformance/differences.toml
    says why. Exit code 1: another one failed.
    """
    archive = given or source.fetch(cache or source.default_cache())
    with folder_for(keep_logs, verb="mosquitto-tests") as folder:
        tests = source.unpack(archive, folder)
        chosen = suite.tests_in(tests, names)
        if not chosen:
            raise click.UsageError(f"no test is named like {', '.join(names)}: see --list")
        known = suite.known_failures(tests, chosen, direct=direct)
        if list_only:
            for test in chosen:
                click.echo(" ".join((test.name, known.get(test.name, ""))).rstrip())
            return 0
        suite.prepare(tests, direct=direct)
        results: list[Result] = []

        def note(result: Result) -> None:
            results.append(result)
            if not as_json:
                _print(result, known.get(result.name))

        work = suite.run(tests, chosen, at_once=processes, attempts=attempts, tell=note)
        asyncio.run(until_stopped(work, name="tests"))
    unexpected = [each for each in results if not each.passed and each.name not in known]
    record = [{**fields_of(each), "known": known.get(each.name)} for each in results]
    tell([_totals(results, unexpected)], record, as_json=as_json)
    return UNEXPECTED if unexpected else 0


def _print(result: Result, known: str | None) -> None:
    if result.passed:
        word, why = "pass", "listed as failing" if known else ""
    else:
        word, why = ("known", known) if known else ("FAIL", "")
    if result.passed and result.attempts > 1:
        why = f"at attempt {result.attempts}"
    click.echo(f"{word:5}  {result.name:45}  {result.seconds:5.1f} s  {why}".rstrip())
    if word == "FAIL":
        for line in result.output.splitlines()[:OUTPUT_LINES]:
            click.echo(f"       | {line}")


def _totals(results: list[Result], unexpected: list[Result]) -> str:
    passed = sum(each.passed for each in results)
    text = f"{passed} of {len(results)} pass"
    if known := len(results) - passed - len(unexpected):
        text += f", {known} fail as they must"
    if unexpected:
        text += f", unexpected: {', '.join(each.name for each in unexpected)}"
    return text
