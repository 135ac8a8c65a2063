"""Lists of numbers on the command line."""

import click


def numbers(
    context: click.Context, option: click.Parameter, text: str | None
) -> tuple[int, ...] | None:
    """``1,3``."""
    if text is None:
        return None
    try:
        return tuple(int(each) for each in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r}: numbers like 1,3 wanted", context, option) from None
