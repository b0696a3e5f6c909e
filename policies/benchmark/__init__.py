"""Benchmarks of policies, and how a comparison flows.

`fl-edge compare` and `leaderboard` (`train_fl.commands`) turn their options into
settings, in a folder that `results_folder` locks. `comparison.compare_settings` then takes these
steps:

1. A `setting.Setting` has a `run.Run` for each policy and its system, gives the runs their seeds,
   and makes a `run.BoundRun` for each seed.
2. `runner.play_runs` plays the runs in processes, each of which makes its policy from its text, and
   keeps each `records.Record` in a file named by the run's key (`stored`); training also saves a
   `checkpoint`. `play.play` plays an episode, and a `records.Recorder` writes down a row for each
   round and the accounts of each device. `bounds` computes the bounds along the same sample paths.
3. `comparison.collected` makes a `comparison.Comparison` of the records of a setting: its rounds,
   its bounds, the status of each policy (`status.judge`), and a row for each run
   (`summary.summarise`).
4. `policies.report` shows comparisons: ranks, tables, LaTeX, figures, and the standings of
   leaderboards. Means have `intervals`.

`evaluate.evaluate` does the same without a folder, from Python.
"""
