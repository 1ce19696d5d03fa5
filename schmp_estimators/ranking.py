"""Evaluation of recommendations.

The module has measures of ranked lists, a scorer, and splitters for cross-validation.

:doc:`../user_guide/mf` shows their use.
"""

from schmp_estimators.mf.metrics import (
    RankingScorer,
    auc_at_k,
    average_precision_at_k,
    ndcg_at_k,
    precision_at_k,
    recall_at_k,
)
from schmp_estimators.mf.splits import LeaveLastOut, TimeSplit, UserShareSplit, as_pairs

__all__ = [
    "LeaveLastOut",
    "RankingScorer",
    "TimeSplit",
    "UserShareSplit",
    "as_pairs",
    "auc_at_k",
    "average_precision_at_k",
    "ndcg_at_k",
    "precision_at_k",
    "recall_at_k",
]


def __dir__() -> list[str]:
    return __all__
