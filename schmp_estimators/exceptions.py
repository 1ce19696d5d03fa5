"""The errors of this package that a caller may want to tell from others.

Invalid parameters and data raise `ValueError` or `TypeError`, as everywhere in scikit-learn.
"""

from schmp_estimators.core.io.checkpoint import CheckpointMismatchError, CheckpointWarning
from schmp_estimators.core.io.slices import SpillError, SpillInUseError, SpillWarning
from schmp_estimators.core.places.errors import (
    AsynchronousClientError,
    MixedClusterError,
    NotSharedError,
    NoWorkersError,
    SchedulerLostError,
    SchMPError,
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
