"""``python -m federator_analytics``: the command line, where its script is not on the path."""

from federator_analytics.cli import main

if __name__ == "__main__":
    main()
