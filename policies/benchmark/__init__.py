"""Measuring policies: how a comparison flows.

`fl-edge compare`, `leaderboard` and `reproduce` (`train_fl.commands`) turn their options into
settings. From there on everything is in this package:

1. `experiment.Setting`: policies under common seeds. It makes a `jobs.Job` of each policy and its
   seeds, and a `jobs.BoundJob` of each seed.
2. `runner.run_jobs` runs the jobs in processes, and keeps each result in a file named by the job's
   hash. `episode.run_episode` plays an episode: a row for each round, and the accounts of each
   device. `bounds` gives the bounds along the same paths.
3. `summary.summarise` turns rounds and bounds into a row for each run; `status.judge` turns the
   accounts of all runs of a policy into its status.
4. `tables`, `latex`, `leaderboard` and `figures` show summaries, means with `intervals`; policies
   look the same in all figures (`styles`). `paper` has the figures of the paper.

`evaluate.evaluate` is the same without a folder, for programs.
"""
