"""``python -m petastorm_bridge``: the command line."""

from .cli import main

if __name__ == "__main__":
    main()
