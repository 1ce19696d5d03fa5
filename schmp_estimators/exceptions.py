"""The errors and warnings that are specific to this package.

Invalid parameters and data raise `ValueError` or `TypeError`, as everywhere in scikit-learn.
"""

from schmp_estimators.core.errors import (
    AsynchronousClientError,
    CheckpointMismatchError,
    CheckpointWarning,
    MixedClusterError,
    NotSharedError,
    NoWorkersError,
    SchedulerLostError,
    SchMPError,
    SpillError,
    SpillInUseError,
    SpillWarning,
    WorkerLostError,
)
from schmp_estimators.mf.data.seen import DuplicateRatingError

__all__ = [
    "AsynchronousClientError",
    "CheckpointMismatchError",
    "CheckpointWarning",
    "DuplicateRatingError",
    "MixedClusterError",
    "NoWorkersError",
    "NotSharedError",
    "SchMPError",
    "SchedulerLostError",
    "SpillError",
    "SpillInUseError",
    "SpillWarning",
    "WorkerLostError",
]


def __dir__() -> list[str]:
    return __all__
