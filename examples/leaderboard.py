"""Rank policies in the settings of a TOML file, print tables and draw a figure.

Without training, in minutes:

    python examples/leaderboard.py examples/leaderboards/system.toml

With models trained on digits:

    python examples/leaderboard.py examples/leaderboards/digits.toml
"""

import sys

from train_fl.command_line import main

if __name__ == "__main__":
    sys.argv.insert(1, "leaderboard")
    main()
