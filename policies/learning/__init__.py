"""Learning agents: views of the batch for Stable-Baselines3, networks and training."""
