"""Inputs, device equations and compilation, shared by the solvers of both problems."""
