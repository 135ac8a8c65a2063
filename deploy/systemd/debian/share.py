"""What the Debian package has beside the program: ``share.py ROOT VERSION MAINTAINER``.

Documentation, examples, manual pages and shell completion, below ``ROOT/usr/share``. The last two
are made from the verbs, the pages by click-man, so that they cannot be wrong. Run from a checkout,
with ``SOURCE_DATE_EPOCH`` set: the same sources make the same bytes.
"""

import gzip
import os
import re
import shutil
import sys
from email.utils import formatdate
from pathlib import Path

import click
from click_man.core import write_man_pages

from federator.cli import federator
from federator.cli.setup.completion import script

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[2]
EXAMPLES = [
    "systemd/federator.toml", "systemd/gateway.toml", "systemd/collector.toml",
    "systemd/mosquitto.conf", "systemd/acl",
    "prometheus/alerts.yml", "grafana/dashboards/federator.json",
]  # fmt: skip
"""Of ``deploy``. Units and prometheus' file of the container grid are no examples."""

COMPLETIONS = {
    "bash": "bash-completion/completions/federator",
    "zsh": "zsh/vendor-completions/_federator",
    "fish": "fish/vendor_completions.d/federator.fish",
}
"""Where each shell looks."""

SEE_ALSO = """\
.SH FILES
/etc/federator/federator.toml, gateway.toml, collector.toml: configurations;
examples are in /usr/share/federator.
.SH SEE ALSO
/usr/share/doc/federator/docs/README.md: all documentation.
"""

CHANGES = """\
federator ({version}) unstable; urgency=medium

  * What changed stands in CHANGELOG.md beside this file.

 -- {maintainer}  {date}
"""


def documentation(share: Path, version: str, maintainer: str) -> None:
    """Pages as they lie in the checkout, so that their links lead somewhere."""
    here = share / "doc" / "federator"
    no_pages = shutil.ignore_patterns("site", "__pycache__")
    shutil.copytree(
        CHECKOUT / "docs", here / "docs", copy_function=shutil.copyfile, ignore=no_pages
    )
    shutil.copyfile(CHECKOUT / "CHANGELOG.md", here / "CHANGELOG.md")
    (here / "deploy").symlink_to("../../federator")
    shutil.copyfile(HERE / "copyright", here / "copyright")
    date = formatdate(int(os.environ["SOURCE_DATE_EPOCH"]))
    changes = CHANGES.format(version=version, maintainer=maintainer, date=date)
    (here / "changelog.gz").write_bytes(packed(changes.encode()))
    overrides = share / "lintian" / "overrides" / "federator"
    overrides.parent.mkdir(parents=True)
    shutil.copyfile(HERE / "lintian-overrides", overrides)


def examples(share: Path) -> None:
    """What an operator copies or names in a configuration."""
    for name in EXAMPLES:
        target = share / "federator" / name.removeprefix("systemd/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(CHECKOUT / "deploy" / name, target)


def manual(share: Path, version: str) -> None:
    """A page for the program and one for each verb."""
    folder = share / "man" / "man1"
    folder.mkdir(parents=True)
    prepare(federator, None)
    write_man_pages("federator", federator, version=version, target_dir=str(folder))
    with (folder / "federator.1").open("a") as page:
        page.write(SEE_ALSO)
    for page in folder.iterdir():
        page.with_name(f"{page.name}.gz").write_bytes(packed(page.read_bytes()))
        page.unlink()


def prepare(command: click.Command, parent: click.Context | None) -> None:
    """Load the verbs of a group, which click-man does not, and escape what roff would read."""
    context = click.Context(command, info_name=command.name, parent=parent)
    command.short_help = command.get_short_help_str(limit=1000).rstrip(".")
    command.help = re.sub(r"(?m)(?<!\w)-", r"\\-", (command.help or "").replace("\\", "\\e"))
    if isinstance(command, click.Group):
        for verb in command.list_commands(context):
            inner = command.get_command(context, verb)
            assert inner is not None, verb
            command.commands[verb] = inner
            prepare(inner, context)


def completion(share: Path) -> None:
    """What each shell reads when TAB is first pressed."""
    for shell, place in COMPLETIONS.items():
        target = share / place
        target.parent.mkdir(parents=True)
        target.write_text(script(shell, federator) + "\n")


def packed(content: bytes) -> bytes:
    """As Debian wants pages and changelogs: the best compression, no time."""
    return gzip.compress(content, 9, mtime=0)


if __name__ == "__main__":
    root, version, maintainer = sys.argv[1:]
    os.umask(0o022)
    below = Path(root) / "usr" / "share"
    documentation(below, version, maintainer)
    examples(below)
    completion(below)
    manual(below, version)
