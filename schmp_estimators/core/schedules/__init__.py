"""The order in which things meet."""
