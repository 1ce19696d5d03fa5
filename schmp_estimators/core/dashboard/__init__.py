"""The page of running fits on the dashboard of Dask: what is told of a fit, who listens, and what is shown."""
