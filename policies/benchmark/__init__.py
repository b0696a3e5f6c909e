"""Benchmarks of policies, and how a comparison flows.

`fl-edge compare`, `leaderboard` and `reproduce` (`train_fl.commands`) turn their options into
settings. All later steps are in this package:

1. `experiment.Setting`: policies under common seeds. It turns each policy and its seeds into a
   `jobs.Job`, and each seed into a `jobs.BoundJob`.
2. `runner.run_jobs` runs the jobs in processes and keeps each result in a file named by the job's
   hash. `episode.run_episode` plays an episode: a row for each round, and the accounts of each
   device. `bounds` computes the bounds along the same sample paths.
3. `summary.summarise` turns rounds and bounds into a row for each run; `status.judge` turns the
   accounts of all runs of a policy into its status.
4. `tables`, `latex`, `leaderboard` and `figures` show summaries as means with `intervals`; policies
   look the same in all figures (`styles`). `paper` draws the figures of the paper.

`evaluate.evaluate` does the same without a folder, from Python.
"""
