"""Scheduled model parallelism for the Python data stack: scikit-learn-style estimators on Dask with numba kernels."""

__version__ = "0.1.0"

from schmp_estimators.estimators.lda import DistributedLDA
from schmp_estimators.monitor.callbacks import HeldOutPerplexity
from schmp_estimators.monitor.display import ConvergenceDisplay

__all__ = ["ConvergenceDisplay", "DistributedLDA", "HeldOutPerplexity", "__version__"]
