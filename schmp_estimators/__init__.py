"""Scheduled model parallelism for the Python data stack.

Estimators in the style of scikit-learn, on Dask with numba kernels.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from schmp_estimators.lda.choose import TopicNumbers, choose_n_components
    from schmp_estimators.lda.estimator import DistributedLDA
    from schmp_estimators.lda.shares import TopicShares
    from schmp_estimators.linear.lasso import (
        PrioritizedLasso,
        PrioritizedLassoCV,
        prioritized_lasso_path,
    )
    from schmp_estimators.linear.logistic import (
        SparseLogisticRegression,
        SparseLogisticRegressionCV,
        sparse_logistic_path,
    )
    from schmp_estimators.linear.stability import Stability, stability_selection
    from schmp_estimators.mf.estimator import ModelParallelMF
    from schmp_estimators.mf.slim import DistributedSLIM
    from schmp_estimators.monitor.callbacks import HeldOutPerplexity
    from schmp_estimators.monitor.display import ConvergenceDisplay
    from schmp_estimators.monitor.path_display import PathDisplay
    from schmp_estimators.monitor.schedule_display import ScheduleDisplay
    from schmp_estimators.monitor.topic_display import TopicDisplay

__version__ = "0.1.0"

__all__ = [
    "ConvergenceDisplay",
    "DistributedLDA",
    "DistributedSLIM",
    "HeldOutPerplexity",
    "ModelParallelMF",
    "PathDisplay",
    "PrioritizedLasso",
    "PrioritizedLassoCV",
    "ScheduleDisplay",
    "SparseGLM",
    "SparseGLMCV",
    "SparseLogisticRegression",
    "SparseLogisticRegressionCV",
    "Stability",
    "TopicDisplay",
    "TopicNumbers",
    "TopicShares",
    "__version__",
    "choose_n_components",
    "prioritized_lasso_path",
    "sparse_glm_path",
    "sparse_logistic_path",
    "stability_selection",
]

# Names are imported when they are first used: Dask imports this package while it is itself being
# imported, to learn the size of sparse arrays.
_MODULES = {
    "ConvergenceDisplay": "schmp_estimators.monitor.display",
    "DistributedLDA": "schmp_estimators.lda.estimator",
    "DistributedSLIM": "schmp_estimators.mf.slim",
    "HeldOutPerplexity": "schmp_estimators.monitor.callbacks",
    "ModelParallelMF": "schmp_estimators.mf.estimator",
    "PathDisplay": "schmp_estimators.monitor.path_display",
    "PrioritizedLasso": "schmp_estimators.linear.lasso",
    "PrioritizedLassoCV": "schmp_estimators.linear.lasso",
    "ScheduleDisplay": "schmp_estimators.monitor.schedule_display",
    "SparseGLM": "schmp_estimators.linear.glm",
    "SparseGLMCV": "schmp_estimators.linear.glm",
    "SparseLogisticRegression": "schmp_estimators.linear.logistic",
    "SparseLogisticRegressionCV": "schmp_estimators.linear.logistic",
    "Stability": "schmp_estimators.linear.stability",
    "TopicDisplay": "schmp_estimators.monitor.topic_display",
    "TopicNumbers": "schmp_estimators.lda.choose",
    "TopicShares": "schmp_estimators.lda.shares",
    "choose_n_components": "schmp_estimators.lda.choose",
    "prioritized_lasso_path": "schmp_estimators.linear.lasso",
    "sparse_glm_path": "schmp_estimators.linear.glm",
    "sparse_logistic_path": "schmp_estimators.linear.logistic",
    "stability_selection": "schmp_estimators.linear.stability",
}


_SUBMODULES = ("datasets", "exceptions", "genotypes", "penalised", "ranking", "sampling", "schmp")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, *_SUBMODULES]
