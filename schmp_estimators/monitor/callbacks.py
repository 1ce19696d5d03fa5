"""Callbacks for scikit-learn's callback API that watch a fit and may end it."""

import logging
from typing import Any

logger = logging.getLogger(__name__)


class HeldOutPerplexity:
    """Callback that measures the perplexity of held-out documents and can end the fit.

    Pass it to ``set_callbacks``, as in the example.  It follows the protocol
    ``sklearn.callback.FitCallback``.  One half of each document is predicted from the other half,
    as in `DistributedLDA.perplexity`.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_documents, n_features)
        Word counts of the held-out documents.
    every : int, default=10
        Number of :term:`sweeps <sweep>` between two measurements.
    patience : int or None, default=None
        End the fit after this many measurements in a row without an improvement.  If None, never
        end it.
    tol : float, default=0.0
        Relative decrease of the perplexity that an improvement must exceed.

    Attributes
    ----------
    history_ : list of dict
        A record for each measurement, with ``iterations`` (number of sweeps) and ``perplexity``.

    Raises
    ------
    ValueError
        If `every` or `patience` is less than 1.  If `tol` is negative, or is given without
        `patience`.  At the start of a fit, if its `max_iter` is less than `every`.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators import DistributedLDA, HeldOutPerplexity
    >>> X = np.random.default_rng(0).poisson(1.0, (60, 30))
    >>> watch = HeldOutPerplexity(X[40:], every=5, patience=2)
    >>> lda = DistributedLDA(3, max_iter=100, random_state=0).set_callbacks(watch).fit(X[:40])
    >>> [record["iterations"] for record in watch.history_][:2]
    [5, 10]
    """

    def __init__(
        self, X: Any, *, every: int = 10, patience: int | None = None, tol: float = 0.0
    ) -> None:
        if every < 1:
            raise ValueError(f"every={every!r}; it is a number of sweeps, at least 1")
        if patience is not None and patience < 1:
            raise ValueError(
                f"patience={patience!r}; it is a number of measurements, at least 1, or None"
            )
        if not tol >= 0:
            raise ValueError(f"tol={tol!r}; it is a relative fall, at least 0")
        if tol and patience is None:
            raise ValueError(f"tol={tol!r} is for patience, which is None; give both, or no tol")
        self.X = X
        self.every = every
        self.patience = patience
        self.tol = tol
        self.history_: list[dict[str, Any]] = []

    @property
    def latest(self) -> dict[str, float]:
        """The last measurement, for progress bars, logs and the dashboard."""
        return {"perplexity": self.history_[-1]["perplexity"]} if self.history_ else {}

    def setup(self, estimator: Any, context: Any) -> None:
        """Delete the measurements of an earlier fit."""
        if not hasattr(estimator, "perplexity"):
            raise TypeError(
                f"HeldOutPerplexity watches topic models, not {type(estimator).__name__}"
            )
        if self.every > estimator.max_iter:
            raise ValueError(
                f"every={self.every} is more than max_iter={estimator.max_iter}, so that nothing "
                "would be measured; give no more"
            )
        self.history_ = []

    def teardown(self, estimator: Any, context: Any) -> None:
        """Do nothing."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Do nothing, because measurements are made at the end of a sweep."""

    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
        """Measure the perplexity every `every` sweeps, and return whether to end the fit."""
        if context.task_name != "sweep" or estimator.n_iter_ % self.every:
            return False
        perplexity = estimator._as_if_fitted().perplexity(self.X)
        self.history_.append({"iterations": estimator.n_iter_, "perplexity": perplexity})
        logger.info("sweep %d: held-out perplexity %.6g", estimator.n_iter_, perplexity)
        return self.patience is not None and self._age_of_best() >= self.patience

    def _age_of_best(self) -> int:
        """Return how many measurements ago the perplexity last fell by more than `tol`."""
        best, age = float("inf"), 0
        for record in self.history_:
            age += 1
            if record["perplexity"] < best * (1 - self.tol):
                best, age = record["perplexity"], 0
        return age
