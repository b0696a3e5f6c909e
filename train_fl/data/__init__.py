"""Data sets, one loader a file, and how they are split over the devices."""
