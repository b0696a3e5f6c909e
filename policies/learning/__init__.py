"""Batches for Stable-Baselines3, and rewards for single devices."""
