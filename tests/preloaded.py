"""What a server of processes imports and compiles once, for tests that start many."""

from policies import LROA, evaluate
from policies.benchmark import bounds, setting
from policies.outcome import prices
from tests.support import BRIEF
from train_fl import TrainingWrapper
from train_fl.commands import compare

bounds._PRICE_ROUNDS = 50
prices._STAGES = (20,)
setting._ROUNDS = 5
evaluate([LROA(BRIEF)], BRIEF, [0], progress=False)
__all__ = ["TrainingWrapper", "compare"]
