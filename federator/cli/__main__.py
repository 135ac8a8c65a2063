"""``python -m federator.cli``."""

from federator.cli import main

main()
