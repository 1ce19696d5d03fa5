"""Runtimes execute tasks, in this process or on a Dask cluster.  They know no algorithm."""
