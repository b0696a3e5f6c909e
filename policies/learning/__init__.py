"""The batch for Stable-Baselines3, and the rewards of single devices."""
