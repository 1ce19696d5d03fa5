"""The page of running fits on Dask's dashboard.

It has the events of fits, who receives them, and how they are shown.
"""
