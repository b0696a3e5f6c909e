"""Compare scheduling policies: run them under common random numbers, print a table, draw plots.

Without options it trains real models on digits:

    python examples/compare.py

The system side of the paper's scenarios:

    python examples/compare.py --scenario cifar10 --no-train
"""

import sys

from train_fl.command_line import main

if __name__ == "__main__":
    main(["compare", *sys.argv[1:]])
