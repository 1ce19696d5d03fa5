"""Where tasks are executed: in this process, or on a Dask cluster."""
