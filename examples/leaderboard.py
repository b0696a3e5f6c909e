"""Rank schedulers in the settings of a TOML file: run them all, print tables, draw a picture.

The system side, in minutes:

    python examples/leaderboard.py examples/leaderboards/system.toml

With real models trained on digits:

    python examples/leaderboard.py examples/leaderboards/digits.toml
"""

import sys

from train_fl.command_line import main

if __name__ == "__main__":
    main(["leaderboard", *sys.argv[1:]])
