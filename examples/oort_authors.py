"""Compare the Oort authors' code with FLEdge's: python examples/oort_authors.py oort.py 30."""

import runpy
import sys
from types import ModuleType, SimpleNamespace

import numpy as np

from fl_edge_env import Scenario
from policies import Scheduler, evaluate, selection
from policies.benchmark.intervals import mean_interval
from train_fl import TrainingEnvFactory

# FedScale's, with repair 1: for K of 2 or 3, int(0.3 K) = 0 devices to explore would fail.
ARGS = SimpleNamespace(exploration_factor=0.9, exploration_decay=0.98, exploration_min=0.5,
    exploration_alpha=0.3, sample_window=5, round_threshold=30, clip_bound=0.9, round_penalty=2,
    pacer_step=20, pacer_delta=5, cut_off_util=0.05, blacklist_rounds=-1)  # fmt: skip


class Authors(selection.Oort):
    """thirdparty/oort/oort.py of github.com/SymbioticLab/FedScale, with FLEdge's inputs."""

    def select(self, candidates):
        """Choose with the authors' code, after a random first cohort as in FedScale."""
        utility = self.memory["utility"]
        rounds = int(self.memory["number"])
        if not rounds:
            self.theirs = create(ARGS)
            for device, reward in enumerate(utility):
                self.theirs.register_client(device, {"reward": reward, "duration": 1.0})
            return np.argsort(candidates.uniform)[: self.scenario.cohort_size]
        for device in np.flatnonzero(self.memory["last_round"] == rounds):
            report = {"reward": utility[device], "time_stamp": rounds, "status": True}
            self.theirs.update_client_util(device, report | {"duration": 1.0})
        for device, time in enumerate(candidates.time):
            self.theirs.update_duration(device, time)
        if not self.theirs.unexplored:  # repair 2: otherwise it repeats the last explored devices
            vars(self.theirs).update(exploreClients=[], exploration=0.0, exploration_min=0.0)
        return np.array(self.theirs.select_participant(self.scenario.cohort_size))


sys.modules["authors.utils.lp"] = ModuleType("lp")  # repair 3: its numpy.* hides min, max, sum
create = runpy.run_path(sys.argv[1], run_name="authors.oort")["create_training_selector"]
training = TrainingEnvFactory(Scenario.digits(), "digits", eval_every=5).fitted()
policies = [Scheduler(rule(training.scenario)) for rule in (Authors, selection.Oort)]
seeds = range(int(sys.argv[2]))
table = evaluate(policies, training.scenario, seeds, make_env=training, target_accuracy=0.9)
columns = ["time_to_target", "total_time", "influence", "never_seen"]
shown = table.groupby("policy")[columns].agg(["mean", "sem"])
print(shown.round(2).to_string())
times = table.pivot(index="seed", columns="policy", values="time_to_target")
more = mean_interval(times["Oort, dynamic"] - times["Authors, dynamic"])
print(f"ours minus theirs on the same seed: {more.mean:.1f} s [{more.low:.1f}, {more.high:.1f}]")
