"""``federator completion SHELL``: what makes TAB complete verbs and options."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command(name="completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print what SHELL has to read for TAB to complete verbs and options.

    \b
    bash: federator completion bash >~/.local/share/bash-completion/completions/federator
    zsh:  federator completion zsh >DIR/_federator, DIR one of $fpath
    fish: federator completion fish >~/.config/fish/completions/federator.fish

    The Debian package brings all three.
    """
    program = click.get_current_context().find_root().command
    click.echo(script(shell, program))


def script(shell: str, program: click.Command) -> str:
    """The completion of ``program`` for a shell, as click makes it from the verbs."""
    completes = get_completion_class(shell)
    assert completes is not None, shell
    name = str(program.name)
    return completes(program, {}, name, f"_{name.upper()}_COMPLETE").source().strip()
