"""Draw the rounds of policies side by side as an animated GIF.

python examples/animate.py --policies lroa uni-s --out examples/figures/lroa-uni-s.gif
"""

from train_fl.command_line import main

if __name__ == "__main__":
    main(command="animate")
