"""The errors of this package that a caller may want to tell from others.

Invalid parameters and data raise `ValueError` or `TypeError`, as everywhere in scikit-learn.
"""

from schmp_estimators.data.ratings import DuplicateRatingError
from schmp_estimators.runtime.errors import (
    AsynchronousClientError,
    MixedClusterError,
    NoWorkersError,
    SchedulerLostError,
    SchMPError,
    WorkerLostError,
)
from schmp_estimators.state.checkpoint import CheckpointMismatchError, CheckpointWarning

__all__ = [
    "AsynchronousClientError",
    "CheckpointMismatchError",
    "CheckpointWarning",
    "DuplicateRatingError",
    "MixedClusterError",
    "NoWorkersError",
    "SchMPError",
    "SchedulerLostError",
    "WorkerLostError",
]
