"""The four families of estimators as the fuzzer sees them.

Data, parameters, and laws that every result obeys.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import dask
import numpy as np
from oracles.l1 import lasso_objective, logistic_objective
from scipy import sparse
from sklearn import linear_model

from schmp_estimators import (
    DistributedLDA,
    ModelParallelMF,
    PrioritizedLasso,
    SparseLogisticRegression,
    schmp,
)


class WrongError(Exception):
    """A result that breaks a law."""


def require(holds: Any, law: str) -> None:
    if not holds:
        raise WrongError(law)


def draw(rng: Any, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def value_of(found: Any) -> Any:
    """Return what is lazy in memory."""
    if isinstance(found, list):
        return np.concatenate(dask.compute(*found))
    return np.asarray(found.compute() if hasattr(found, "compute") else found)


def drawn(rng: Any, choices: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    return {name: draw(rng, *values) for name, values in choices.items()}


class Family:
    """One family.

    Each has `data`, zeros of which are what is not stored; an `estimator`; `use`, what the fitted
    one says of X, after the laws of its outputs; `state`, what was learned, in one array; and
    `obey`, which raises if a law of fits is broken, and gets a dense X, or None where the numbers
    are not known.
    """

    name: str
    #: Whether another form of the same numbers gives the same bits, or only a solution of the same
    #: problem.
    same_bits = True
    extreme_parameters: ClassVar[dict[str, tuple[Any, ...]]]

    def extreme(self, rng: Any) -> Any:
        """Return an estimator with legal parameters at the ends of their ranges."""
        return self.estimator(rng).set_params(**drawn(rng, self.extreme_parameters))

    def extreme_data(self, X: Any, rng: Any) -> Any:
        """Return legal data with numbers of unusual size."""
        return X

    def extreme_responses(self, y: Any, rng: Any) -> Any:
        return y

    def dense(self, X: Any) -> Any:
        """Return the numbers as a dense array means them."""
        return X

    def fit(self, estimator: Any, X: Any, y: Any) -> Any:
        return estimator.fit(X) if y is None else estimator.fit(X, y)


class Topics(Family):
    name = "lda"
    extreme_parameters: ClassVar = {
        "n_components": (1, 2, 50, 3000, 70_000, 2**31 - 1),
        "doc_topic_prior": (None, 1e-300, 1e-12, 1e30, 5e-324, 0.1),
        "topic_word_prior": (None, 1e-300, 1e-12, 1e30, 0.1, 5e-324),
        "mh_steps": (1, 4),
        "n_shards": (None, 1, 3, 40, 20_000),
        "n_jobs": (None, 2, -1, 64),
        "evaluate_every": (0, 1),
        "tol": (0.0, 1e-3, 1e300),
        "random_state": (0, 2**32 - 1, np.int64(5), np.uint8(7)),
        "warm_start": (True, False),
    }

    def data(self, rng: Any) -> tuple[Any, Any]:
        shape = int(rng.integers(8, 40)), int(rng.integers(4, 16))
        return rng.poisson(draw(rng, 0.3, 1, 3), shape).astype(np.int64), None

    def extreme_data(self, X: Any, rng: Any) -> Any:
        heavy = X.copy()
        heavy[0, 0] = 300_000
        return draw(
            rng,
            X,
            heavy,
            X * 40,
            X * (np.arange(X.shape[1]) < 1),
            X * (np.arange(len(X)) < 1)[:, None],
        )

    def estimator(self, rng: Any) -> Any:
        return DistributedLDA(3, max_iter=3, random_state=0, sampler=draw(rng, "warp", "fplus"))

    def extreme(self, rng: Any) -> Any:
        found = super().extreme(rng)
        return found.set_params(mh_steps=2) if found.sampler == "fplus" else found

    def state(self, fitted: Any) -> Any:
        return fitted.topic_word_counts_.toarray()

    def use(self, fitted: Any, X: Any) -> Any:
        theta = value_of(fitted.transform(X))
        require(np.isfinite(theta).all(), "proportions are finite")
        require((abs(theta.sum(axis=1) - 1) < 1e-6).all(), "proportions sum to 1")
        require(not np.isinf(fitted.perplexity(X)), "the perplexity is finite, or NaN")
        return theta

    def obey(self, fitted: Any, X: Any, y: Any) -> None:
        counts = fitted.topic_word_counts_
        require(counts.data.min(initial=1) > 0, "counts are positive")
        if X is not None:
            require(np.array_equal(counts.sum(axis=0), X.sum(axis=0)), "no token is lost")


class Factors(Family):
    name = "mf"
    extreme_parameters: ClassVar = {
        "n_components": (1, 2, 17, 300),
        "alpha": (0.0, 1e-30, 1e30, 1e300, 0.1),
        "learning_rate": (1e-30, 1e30, 1e300, 1.0, 0.1),
        "positive": (True, False),
        "penalty": ("per_row", "per_rating", 0.5),
        "fit_bias": (True, False),
        "schedule": ("rotation", "bsp"),
        "n_shards": (None, 1, 3, 40),
        "n_jobs": (None, 2, -1, 64),
        "early_stopping": (False, True),
        "validation_fraction": (1e-300, 0.1, 0.999999),
        "tol": (0.0, 1e-300, 1.0, 1e300),
        "evaluate_every": (0, 1),
    }

    def data(self, rng: Any) -> tuple[Any, Any]:
        shape = int(rng.integers(8, 40)), int(rng.integers(4, 16))
        X = rng.integers(1, 6, shape) * (rng.random(shape) < 0.5)
        X[0, 0] = 3
        return X.astype(float), None

    def extreme_data(self, X: Any, rng: Any) -> Any:
        """Return ratings with another scale or mean, negative or equal ones, or a single one."""
        rated = X != 0
        one = np.where(rated & (np.cumsum(rated).reshape(X.shape) == 1), X, 0)
        others = [X * 1e-12, X * 1e12, rated * 1e8 + X, X - 6 * rated, rated * 3.0, one]
        return draw(rng, X, *others)

    def estimator(self, rng: Any) -> Any:
        return ModelParallelMF(3, max_iter=3, random_state=0, solver=draw(rng, "sgd", "ccd"))

    def dense(self, X: Any) -> Any:
        return np.where(X == 0, np.nan, X)

    def state(self, fitted: Any) -> Any:
        parts = fitted.components_, fitted.user_factors_, fitted.user_bias_, fitted.item_bias_
        return np.concatenate([np.ravel(part) for part in parts])

    def use(self, fitted: Any, X: Any) -> Any:
        vectors = value_of(fitted.transform(X))
        require(np.isfinite(vectors).all(), "vectors are finite")
        items, _ = fitted.recommend([0, 10**6], n=3, exclude=None)
        require(
            ((items >= -1) & (items < fitted.components_.shape[1])).all(),
            "what is recommended exists",
        )
        require(
            np.isfinite(fitted.predict(np.array([[0, 0], [10**6, 10**6]]))).all(),
            "predictions are finite",
        )
        return vectors

    def obey(self, fitted: Any, X: Any, y: Any) -> None:
        require(np.isfinite(self.state(fitted)).all(), "factors are finite")
        require(
            not fitted.positive or self.state(fitted)[: fitted.components_.size].min() >= 0,
            "factors are positive",
        )


class Certified(Family):
    """What the two L1 models have in common: laws of their solutions rather than of bits.

    Each has the `responses` of scores, the size of the objective `at_zero`, and `objectives` of the
    solution found and of one that another solver found.
    """

    same_bits = False
    extreme_parameters: ClassVar = {
        "tol": (0.0, 1e-300, 1e-3, 1.0, 1e300),
        "schedule": (
            *("resolve", "resolve", "priority", "random", "round_robin"),
            *(schmp.Random(1), schmp.Random(10**6), schmp.RoundRobin(max_correlation=0.0)),
            *(
                schmp.Priority(pipeline_depth=50),
                schmp.Priority(3, correlation_rows=1, refresh=None),
            ),
            *(schmp.Priority(max_correlation=None, pipeline_depth=3), schmp.Priority(refresh=1)),
        ),
        "n_shards": (None, 1, 3, 10**6),
        "n_jobs": (None, 2, -1, 64),
        "fit_intercept": (True, False),
        "max_iter": (1, 20),
        "warm_start": (True, False),
    }
    common: ClassVar = {"tol": 1e-6, "max_iter": 200, "random_state": 0}

    def data(self, rng: Any) -> tuple[Any, Any]:
        shape = int(rng.integers(8, 40)), int(rng.integers(4, 16))
        X = np.round(rng.normal(size=shape) * 8) * (rng.random(shape) < 0.7)
        scores = X @ rng.normal(size=shape[1]) + rng.normal(size=shape[0])
        return X / draw(rng, 1, 8), self.responses(scores)

    def extreme_data(self, X: Any, rng: Any) -> Any:
        """Return X with another scale or a large mean, equal or constant columns, or few rows."""
        constant = np.where(np.arange(X.shape[1]) == 0, 7.0, X)
        return draw(
            rng,
            X,
            X * 1e-9,
            X * 1e9,
            X + 1e3,
            X + 1e6,
            np.tile(X, 2),
            constant,
            np.zeros_like(X),
            X[:3],
        )

    def state(self, fitted: Any) -> Any:
        return np.concatenate([np.ravel(fitted.coef_), np.ravel(fitted.intercept_)])

    def use(self, fitted: Any, X: Any) -> Any:
        found = value_of(fitted.predict(X))
        require(found.dtype.kind != "f" or np.isfinite(found).all(), "predictions are finite")
        return found

    def obey(self, fitted: Any, X: Any, y: Any) -> None:
        require(np.isfinite(self.state(fitted)).all(), "coefficients are finite")
        gap = np.ravel(fitted.dual_gap_)
        require(
            (gap >= -1e-9 * np.abs(self.at_zero(fitted, y))).all(), f"gaps are not negative: {gap}"
        )
        if X is None or np.ndim(y) != 1 or len(gap) != 1 or not np.isfinite(gap[0]):
            return
        found, other = self.objectives(fitted, X.astype(float), y)
        # Coefficients of float32 input are rounded to it.
        slack = (
            1e-5 * abs(other)
            if fitted.coef_.dtype == np.float32
            else 1e-9 * self.at_zero(fitted, y)
        )
        require(
            found <= other + gap[0] + slack,
            f"the gap {gap[0]:.3g} holds: {found:.9g} against {other:.9g}",
        )


class Lasso(Certified):
    name = "lasso"
    extreme_parameters: ClassVar = Certified.extreme_parameters | {
        "alpha": (1e-300, 1e-30, 1e-3, 0.1, 1e3, 1e300, 5e-324),
        "positive": (False, False, True),
    }

    def responses(self, scores: Any) -> Any:
        return scores

    def estimator(self, rng: Any) -> Any:
        return PrioritizedLasso(
            draw(rng, 0.01, 0.1, 1.0), schedule=draw(rng, "resolve", "priority"), **self.common
        )

    def extreme_responses(self, y: Any, rng: Any) -> Any:
        scaled = [y / abs(y).max() * largest for largest in (1, 1e150, 1e-160, 1e-310, 1e307)]
        return draw(rng, y, np.full(len(y), 3.0), np.column_stack([y, -y]), y + 1e9, *scaled)

    def at_zero(self, fitted: Any, y: Any) -> float:
        with np.errstate(over="ignore"):
            return float(np.square(np.asarray(y, float)).mean())

    def objectives(self, fitted: Any, X: Any, y: Any) -> tuple[float, float]:
        options = {
            "fit_intercept": fitted.fit_intercept,
            "positive": fitted.positive,
            "max_iter": 100,
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other = linear_model.Lasso(fitted.alpha, **options).fit(X, y)
        return tuple(
            lasso_objective(X, y, one.coef_.astype(float), one.intercept_, fitted.alpha)
            for one in (fitted, other)
        )


class Logistic(Certified):
    name = "logistic"
    extreme_parameters: ClassVar = Certified.extreme_parameters | {
        "C": (1e-300, 1e-30, 1e-3, 0.1, 1e3, 1e300, 5e-324),
        "class_weight": (None, "balanced"),
    }

    def responses(self, scores: Any) -> Any:
        y = (scores > np.median(scores)).astype(int)
        y[:2] = 0, 1
        return y

    def estimator(self, rng: Any) -> Any:
        C, schedule = draw(rng, 0.01, 0.1, 1.0), draw(rng, "resolve", "priority")
        return SparseLogisticRegression(C, schedule=schedule, **self.common)

    def extreme_responses(self, y: Any, rng: Any) -> Any:
        kinds = [y.astype(kind) for kind in (str, bool, object, float)]
        return draw(rng, y, np.arange(len(y)) % 4, y * 10**18, *kinds)

    def use(self, fitted: Any, X: Any) -> Any:
        shares = value_of(fitted.predict_proba(X))
        require(np.isfinite(shares).all(), "probabilities are finite")
        require((abs(shares.sum(axis=1) - 1) < 1e-9).all(), "probabilities sum to 1")
        require(
            np.isin(value_of(fitted.predict(X)), fitted.classes_).all(), "predictions are classes"
        )
        return shares

    def at_zero(self, fitted: Any, y: Any) -> float:
        return fitted.C * len(y)

    def objectives(self, fitted: Any, X: Any, y: Any) -> tuple[float, float]:
        sign = np.where(y == fitted.classes_[1], 1.0, -1.0)
        weights = np.ones(len(y))
        if fitted.class_weight == "balanced":
            weights = len(y) / (2.0 * np.array([(sign == one).sum() for one in sign]))
        options = {"solver": "saga", "max_iter": 300, "fit_intercept": fitted.fit_intercept}
        other = linear_model.LogisticRegression(
            C=np.clip(fitted.C, 1e-10, 1e10), l1_ratio=1.0, **options
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other.fit(X, sign, weights)
        return tuple(
            logistic_objective(
                X, sign, one.coef_[0].astype(float), one.intercept_[0], fitted.C, weights
            )
            for one in (fitted, other)
        )


FAMILIES = [Topics(), Factors(), Lasso(), Logistic()]


def canonical(family: Family, X: Any) -> Any:
    """Return the form to which all others are compared."""
    return sparse.csr_array(X) if family.name == "mf" else X
