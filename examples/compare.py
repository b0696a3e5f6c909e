"""Compare policies with common random numbers, print a table and draw figures.

By default it trains models on digits, for half of the system's rounds:

    python examples/compare.py

Without training, on the paper's CIFAR-10 system:

    python examples/compare.py --scenario cifar10 --no-train
"""

import sys

from train_fl.command_line import main

if __name__ == "__main__":
    # 90 % accuracy needs less than half of the system's 300 rounds.
    sys.argv[1:] = ["compare", *(sys.argv[1:] or ["--rounds", "150"])]
    main()
