"""Data sets and their splits over the devices."""
