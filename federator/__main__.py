"""``python -m federator``: the command line, where its script is not on the path."""

from federator.cli import main

if __name__ == "__main__":
    main()
