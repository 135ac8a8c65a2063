"""Where verbs print wide tables."""

from rich.console import Console


def report_console(columns: int) -> Console:
    """As wide as the terminal; ``columns`` wide where there is none, so that no table is cut."""
    console = Console()
    if not console.is_terminal:
        console.width = columns
    return console
