"""Errors and warnings for reasons that lie outside the algorithm."""


class SchMPError(RuntimeError):
    """Base class of the errors of engines and runtimes."""


class WorkLostError(SchMPError):
    """Results were lost beyond what Dask computes again; work begins anew at the last snapshot, or with the input."""


class WorkerLostError(SchMPError):
    """Workers kept dying, or did not come back, and the run was given up."""


class NoWorkersError(SchMPError):
    """The Dask cluster has no workers that can work, since there are none or all are paused, and got none in time."""


class SchedulerLostError(SchMPError):
    """The scheduler of the Dask cluster could not be reached any more, or the client was closed."""


class MixedClusterError(SchMPError):
    """The workers of the cluster run different software or have different CPUs, so that bits could differ."""


class NotSharedError(ValueError):
    """A worker finds under a path another file, or another folder, than the client, or none."""


class AsynchronousClientError(SchMPError):
    """The active Dask client is asynchronous; estimators need a synchronous one."""


class CheckpointMismatchError(ValueError):
    """The checkpoint belongs to another fit, or is damaged."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; the fit goes on without it."""


class SpillError(SchMPError):
    """What does not fit into memory cannot be kept on disk, either."""


class SpillInUseError(SpillError):
    """Another fit works in the folder."""


class SpillWarning(UserWarning):
    """A fit does not fit into memory, and uses a folder on disk."""
