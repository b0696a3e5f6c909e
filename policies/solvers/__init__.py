"""What the solvers of both problems share."""
