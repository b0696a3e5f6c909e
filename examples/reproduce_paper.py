"""Reproduce the figures of the paper's Section VII, one at a time.

For example:

    python examples/reproduce_paper.py baselines

Models are trained only with --train. Rerun the command to resume a killed experiment. Figures (PNG
and PDF) and the data of each figure (CSV) go to runs/paper.
"""

import sys

from train_fl.command_line import main

if __name__ == "__main__":
    sys.argv.insert(1, "reproduce")
    main()
