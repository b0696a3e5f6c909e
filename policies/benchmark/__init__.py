"""Measuring policies: runs, accounts, bounds, statistics, tables, figures and options."""
