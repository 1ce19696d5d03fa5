"""The algorithms for topic models, as programs."""
