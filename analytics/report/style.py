"""Style sheets, scripts and templates that are shipped with the code."""

from importlib.resources import files


def asset(name: str, package: str = "analytics.report") -> str:
    """The text of one file of a package's folder ``assets``. Names are ours, never a client's."""
    return files(package).joinpath("assets", name).read_text(encoding="utf-8")
