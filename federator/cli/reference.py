"""The pages docs/cli.md and docs/lab.md, written from the verbs so that they cannot be wrong."""

from collections.abc import Iterator

import click

HEAD = """\
# Command line

`federator VERB`; `federator VERB --help` says the same as this page. Verbs that ask a running agent
(`status`, `topology`, `explain`, ...) find it by the configuration that the agent was started with
(`-c`), or by `--url`. Exit codes are those of `sysexits.h`, listed in
[configuration.md](configuration.md); where a verb has others its text says so. An error is one line
on standard error.

Daemons are `run`, `gateway` and `collect`. Operators use the verbs from `check-config` to `tap`;
`plan` and `place` plan offline. What measures and tries out the product is
[`federator-lab`](lab.md), which a checkout brings and an installed package does not.

This page is written by `federator --reference > docs/cli.md`.
"""


def reference(root: click.Group, head: str = HEAD) -> str:
    """Markdown: every verb of ``root``, its arguments, options and their defaults."""
    context = click.Context(root, info_name=root.name)
    verbs = list(_verbs(context))
    rows = []
    for each in verbs:
        path, about = _path(each), _cell(each.command.get_short_help_str(limit=200))
        rows.append(f"| [`{path}`](#{path.replace(' ', '-')}) | {about} |")
    index = "\n".join(["| verb | does |", "| --- | --- |", *rows, ""])
    options = _options(context)
    everywhere = f"Before any verb:\n\n{options}" if options else ""
    return "\n".join([head, index, everywhere, *(_section(each) for each in verbs)])


def _verbs(context: click.Context) -> Iterator[click.Context]:
    """The commands below a group, depth first, in the order of its help.

    A group that does something without a verb of its own is one of them.
    """
    group = context.command
    assert isinstance(group, click.Group)
    if group.invoke_without_command:
        yield context
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        inner = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from _verbs(inner)
        else:
            yield inner


def _section(context: click.Context) -> str:
    usage = " ".join([_path(context), *context.command.collect_usage_pieces(context)])
    told = "\n\n".join(_paragraphs(context.command.help or ""))
    blocks = [f"## {_path(context)}", f"    {usage}", told]
    if options := _options(context):
        blocks.append(options.rstrip())
    return "\n\n".join(blocks) + "\n"


def _paragraphs(text: str) -> list[str]:
    """Help as Markdown: click's ``\\b`` keeps lines as they are, other lines flow."""
    found = []
    for block in text.replace("\f", "").strip().split("\n\n"):
        lines = [line.strip() for line in block.strip().splitlines()]
        kept = bool(lines) and lines[0] == "\b"
        found.append("\n".join(f"    {line}" for line in lines[1:]) if kept else " ".join(lines))
    return found


def _options(context: click.Context) -> str:
    """The table of options, empty when there is but ``--help``."""
    command = context.command
    help_names = set(command.get_help_option_names(context))
    records = [
        record
        for parameter in command.get_params(context)
        if not help_names & set(parameter.opts)
        and (record := parameter.get_help_record(context))
        and (record[1] or isinstance(parameter, click.Option))
    ]
    if not records:
        return ""
    # The range at the end of ``--seed INTEGER RANGE`` makes that word needless.
    rows = [
        f"| `{_cell(names.removesuffix(' RANGE'))}` | {_cell(told)} |" for names, told in records
    ]
    return "\n".join(["| option | meaning |", "| --- | --- |", *rows, ""])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _path(context: click.Context) -> str:
    return context.command_path.replace("  ", " ")
