"""Reproduce the figures of the paper's Section VII, one subcommand for each experiment.

For example:

    python examples/reproduce_paper.py baselines

Without --train it is the system side alone. A killed experiment continues when it is started
again. Figures (PNG and PDF) and the data of each figure (CSV) go to runs/paper.
"""

from train_fl.command_line import main

if __name__ == "__main__":
    main(command="reproduce", description=__doc__)
