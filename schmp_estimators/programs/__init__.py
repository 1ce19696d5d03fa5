"""Algorithms as schedule, update and aggregate: pure functions that know neither Dask nor files."""
