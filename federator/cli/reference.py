"""Prints docs/cli.md and docs/lab.md from the verbs, so that they agree."""

from collections.abc import Iterator

import click

_HEAD = """\
# Command line

`federator VERB`; `federator VERB --help` says the same as this page. Verbs that ask a running agent
(`status`, `topology`, `explain`, ...) find it by the configuration that the agent was started with
(`-c`), or by `--url`. An error is one line on standard error. Every verb that prints what came of
it has `--json`, but for those whose output is a file, a picture or a live screen.

Daemons are `run`, `gateway`, `collect`, `steer` and `console`. Operators use the verbs from `init`
to `tap`; `plan` and `place` plan offline. What measures and tries out the product is
[`federator-lab`](lab.md), which a checkout brings and an installed package does not.

This page is written by `federator --reference > docs/cli.md`.

## Exit codes

Those of `sysexits.h`, of every verb; a supervisor need not try again after 64 to 66, 73, 77 and 78.
0: all is well. 1 and 2 are answers, such as not ready: the verb's text says which.

| code | meaning |
| --- | --- |
{codes}
"""

EXIT_CODES = {
    64: "the command line is wrong",
    65: "a file that was given holds nothing that can be used",
    66: "a file is missing: the configuration, or one that was named",
    69: "a broker or an agent cannot be reached, or a port is taken",
    70: "a mistake of ours",
    71: "the operating system refused a process that is needed",
    73: "a file or folder cannot be made or written, or is there already",
    75: "another agent or collector uses the folder",
    77: "a file cannot be read, others can read a secret, or a broker refuses our credentials",
    78: "a configuration must be mended, ours or the broker's; or the broker has an agent",
    130: "Ctrl-C",
}
"""The exit codes of our programs, besides 0 and a verb's own answers; a test compares them with all
errors."""

HEAD = _HEAD.format(
    codes="\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
)


def reference(root: click.Group, head: str = HEAD) -> str:
    """Markdown: every verb of ``root``, its arguments, options and their defaults."""
    context = click.Context(root, info_name=root.name)
    verbs = list(_verbs(context))
    rows = []
    for verb in verbs:
        path, about = _path(verb), _cell(verb.command.get_short_help_str(limit=200))
        rows.append(f"| [`{path}`](#{path.replace(' ', '-')}) | {about} |")
    index = "\n".join(["| verb | does |", "| --- | --- |", *rows, ""])
    options = _options(context)
    everywhere = f"Before any verb:\n\n{options}" if options else ""
    return "\n".join([head, index, everywhere, *(_section(verb) for verb in verbs)])


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
    about = "\n\n".join(_paragraphs(context.command.help or ""))
    blocks = [f"## {_path(context)}", f"    {usage}", about]
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
        f"| `{_cell(names.removesuffix(' RANGE'))}` | {_cell(meaning)} |"
        for names, meaning in records
    ]
    return "\n".join(["| option | meaning |", "| --- | --- |", *rows, ""])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _path(context: click.Context) -> str:
    return context.command_path.replace("  ", " ")
