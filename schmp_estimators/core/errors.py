"""Errors and warnings for reasons that lie outside the algorithm."""


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters, with its middle left out if it is longer."""
    half = most // 2
    return text if len(text) <= most else f"{text[: half - 2]} … {text[1 - half :]}"


class SchMPError(RuntimeError):
    """Base class of errors that are caused by a cluster, its workers or a disk."""


class WorkLostError(SchMPError):
    """Results were lost that Dask cannot compute again.

    The work restarts from the last snapshot or from the input.
    """


class WorkerLostError(SchMPError):
    """The fit failed because of its workers.

    They died repeatedly, did not come back, or had the only copy of the input.
    """


class NoWorkersError(SchMPError):
    """The Dask cluster has no workers, or all are paused, and this did not change in time."""


class SchedulerLostError(SchMPError):
    """The scheduler of the Dask cluster cannot be reached, or the client was closed."""


class MixedClusterError(SchMPError):
    """The workers have different software or CPUs, so results could differ between them."""


class NotSharedError(ValueError):
    """A path leads to another file or folder on a worker than on the client, or to none."""


class AsynchronousClientError(SchMPError):
    """The active Dask client is asynchronous; estimators need a synchronous one."""


class CheckpointMismatchError(ValueError):
    """The checkpoint belongs to another fit, or is damaged."""

    def __init__(self, message: str) -> None:
        super().__init__(shortened(message, 500))  # it quotes a file, of whatever length


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; the fit continues without it."""


class SpillError(SchMPError):
    """Data that do not fit in memory cannot be written to disk."""


class SpillInUseError(SpillError):
    """Another fit uses the folder that `spill` names."""


class SpillWarning(UserWarning):
    """The data of a fit exceed the memory, and go to disk."""
