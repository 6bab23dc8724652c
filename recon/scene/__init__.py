"""A dynamic scene: the Gaussian table, how its parts move, and its files."""
