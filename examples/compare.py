"""Compare policies with common random numbers, print a table and draw figures.

By default it trains models on digits:

    python examples/compare.py

Without training, on the paper's CIFAR-10 system:

    python examples/compare.py --scenario cifar10 --no-train
"""

import sys

from train_fl.command_line import main

if __name__ == "__main__":
    sys.argv.insert(1, "compare")
    main()
