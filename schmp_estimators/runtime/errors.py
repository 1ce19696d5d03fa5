"""The errors a run can end with for reasons that lie outside the algorithm."""


class SchMPError(RuntimeError):
    """Base class of the errors of engines and runtimes."""


class WorkLostError(SchMPError):
    """Results were lost with their workers beyond what can be computed again; the engine restores its last cut."""


class WorkerLostError(SchMPError):
    """Workers kept dying, or did not come back, and the run was given up."""


class NoWorkersError(SchMPError):
    """The Dask cluster has no workers and got none in time."""


class MixedClusterError(SchMPError):
    """The workers of the cluster run different software or have different CPUs, so that bits could differ."""


class AsynchronousClientError(SchMPError):
    """The active Dask client is asynchronous; estimators need a synchronous one."""
