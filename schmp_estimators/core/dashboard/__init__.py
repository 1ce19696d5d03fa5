"""The page of running fits on Dask's dashboard: the events of fits, who receives them, and how they are shown."""
