r"""Train an agent of Stable-Baselines3 to schedule the devices.

The shipped agent decides for each device on its own and learns within a minute or two on one core:

    python examples/train_sb3.py --scenario cifar10

Compare it with the analytic policies:

    python examples/compare.py --scenario cifar10 --no-train \
        --policies lroa uni-d runs/agents/cifar10-ppo-privileged/seed-0
"""

import sys

from train_fl.command_line import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
