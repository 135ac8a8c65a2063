"""``python -m lab``: the command line, where its script is not on the path."""

from lab.cli import main

if __name__ == "__main__":
    main()
