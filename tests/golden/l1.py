"""L1 models: schedules, forms of X, weights, several responses, paths and cross-validation."""

import dask.array as da
import numpy as np
from golden.record import result
from scipy import sparse

import schmp_estimators as se
from schmp_estimators import schmp

HERE = ("here",)
MEMORY = ("here", "threads", "cluster")
CHUNKS = ("here", "cluster")

_RNG = np.random.default_rng(0)
TALL = _RNG.normal(size=(80, 12))
WIDE = np.asfortranarray(_RNG.normal(size=(40, 150)) + _RNG.normal(size=(40, 1)))
SPARSE = sparse.csc_array(WIDE * (_RNG.random(WIDE.shape) < 0.15))
SMALL_INTEGERS = _RNG.integers(0, 3, (60, 90), dtype=np.int8)
WEIGHTS = _RNG.integers(0, 4, 80).astype(float)
PARTS = np.repeat([0.0, 1.0, 3.0], [30, 30, 20])


def response(X):
    """Return responses of a few columns, with noise that does not depend on the machine's BLAS."""
    columns = X[:, [0, 1, 5]]
    columns = columns.toarray() if sparse.issparse(columns) else columns.astype(float)
    return (
        columns[:, 0]
        - 2 * columns[:, 1]
        + columns[:, 2]
        + np.random.default_rng(1).normal(size=X.shape[0])
    )


def labels(X):
    y = response(X)
    return np.where(y > 0.8, "up", np.where(y < -0.8, "down", "level"))


def factors(p):
    """Return penalty factors of several sizes.

    The first column and every 70th after it are not penalised.
    """
    return np.where(np.arange(p) % 70 == 0, 0.0, 1.0 + np.arange(p) % 3)


def described(fitted):
    """Return what a fitted model is remembered by: its certificate, too."""
    gaps = np.atleast_1d(fitted.dual_gap_)
    figures = {"tolerance": 10 * fitted.tol, "dual_gap": gaps.sum()}
    if gaps.size == 1:
        figures["objective"] = fitted.history_[-1]["objective"]
    else:
        figures["loss"] = np.abs(fitted.coef_).sum()
    return result(
        figures,
        coef=fitted.coef_,
        intercept=fitted.intercept_,
        gap=gaps,
        n_iter=np.atleast_1d(fitted.n_iter_),
        objectives=[record["objective"] for record in fitted.history_],
    )


def given(X, chunks):
    return X if chunks is None else da.from_array(X, chunks=(chunks, X.shape[1]))


def fit(kind, X, y, weights=None, chunks=None, **parameters):
    """Fit in memory, or, with `chunks`, on Dask."""

    def run(place):
        threads = {"n_jobs": 2} if place == "threads" else {}
        estimator = kind(**{"tol": 1e-6} | parameters | threads)
        return described(estimator.fit(given(X, chunks), y, sample_weight=weights))

    return run


def lasso(X, y=None, weights=None, chunks=None, **parameters):
    return fit(
        se.PrioritizedLasso,
        X,
        response(X) if y is None else y,
        weights,
        chunks,
        **{"alpha": 0.05} | parameters,
    )


def groups(X, y=None, weights=None, chunks=None, **parameters):
    """Fit groups of five neighbouring columns, of which the second has no penalty."""
    numbers = np.arange(X.shape[1]) // 5
    own = np.where(np.arange(numbers[-1] + 1) == 1, 0.0, 2.0)
    given = {"penalty": "group", "groups": numbers, "penalty_factors": own, "alpha": 0.05}
    y = response(X) if y is None else y
    return fit(se.SparseGLM, X, y, weights, chunks, **given | parameters)


def classes(X, weights=None, chunks=None, **parameters):
    given = {"loss": "multinomial", "alpha": 0.02}
    return fit(se.SparseGLM, X, labels(X), weights, chunks, **given | parameters)


def logistic(X, y=None, weights=None, chunks=None, **parameters):
    return fit(
        se.SparseLogisticRegression,
        X,
        response(X) > 0 if y is None else y,
        weights,
        chunks,
        **parameters,
    )


def warm(make, **change):
    def run(place):
        estimator, X, y = make()
        estimator.set_params(warm_start=True, tol=1e-6).fit(X, y)
        return described(estimator.set_params(**change).fit(X, y))

    return run


def path(X, chunks=None, **parameters):
    def run(place):
        alphas, coefs, intercepts, gaps = se.prioritized_lasso_path(
            given(X, chunks), response(X), alphas=8, eps=0.01, tol=1e-6, **parameters
        )
        figures = {"tolerance": 1e-5, "dual_gap": np.max(gaps), "loss": np.abs(coefs).sum()}
        return result(figures, alphas=alphas, coefs=coefs, intercepts=intercepts, gaps=gaps)

    return run


def logistic_path(X, chunks=None):
    def run(place):
        Cs, coefs, intercepts, gaps = se.sparse_logistic_path(
            given(X, chunks), response(X) > 0, Cs=5, tol=1e-6
        )
        figures = {
            "tolerance": 1e-5,
            "dual_gap": np.max(gaps / Cs) / len(X),
            "loss": np.abs(coefs).sum(),
        }
        return result(figures, Cs=Cs, coefs=coefs, intercepts=intercepts, gaps=gaps)

    return run


def lasso_cv(X, weights=None, chunks=None, **parameters):
    def run(place):
        found = se.PrioritizedLassoCV(**{"alphas": 6, "eps": 0.01, "cv": 3} | parameters)
        found.fit(given(X, chunks), response(X), sample_weight=weights)
        figures = {"scores": found.mse_path_.mean(), "loss": found.alpha_}
        return result(
            figures,
            coef=found.coef_,
            alpha=found.alpha_,
            scores=found.mse_path_,
            intercept=found.intercept_,
        )

    return run


def logistic_cv(X, y, chunks=None, **parameters):
    def run(place):
        found = se.SparseLogisticRegressionCV(**{"Cs": [0.1, 1.0, 10.0], "cv": 3} | parameters).fit(
            given(X, chunks), y
        )
        figures = {"scores": found.scores_.mean(), "loss": np.mean(found.C_)}
        return result(
            figures,
            coef=found.coef_,
            chosen=found.C_,
            scores=found.scores_,
            intercept=found.intercept_,
        )

    return run


SCHEDULED = {"random_state": 0, "max_iter": 6, "tol": 1e-3}

#: By name: what runs, and where all give the same bits.
CASES = {
    "lasso, tall": (lasso(TALL), MEMORY),
    "lasso, wide": (lasso(WIDE), MEMORY),
    "lasso, wide, 3 shards": (lasso(WIDE, n_shards=3), MEMORY),
    "lasso, chunks": (lasso(TALL, chunks=30), CHUNKS),
    "lasso, sparse": (lasso(SPARSE), MEMORY),
    "lasso, sparse, 3 shards": (lasso(SPARSE, n_shards=3), MEMORY),
    "lasso, int8": (lasso(SMALL_INTEGERS, n_shards=2), MEMORY),
    "lasso, float32": (lasso(WIDE.astype(np.float32), tol=1e-4), MEMORY),
    "lasso, weights": (lasso(TALL, weights=WEIGHTS), MEMORY),
    "lasso, weights on chunks": (lasso(TALL, weights=PARTS, chunks=30), CHUNKS),
    "lasso, positive": (lasso(WIDE, positive=True), MEMORY),
    "lasso, positive and sparse": (lasso(SPARSE, positive=True), HERE),
    "lasso, no intercept": (lasso(WIDE, fit_intercept=False), MEMORY),
    "lasso, targets": (lasso(TALL, y=np.column_stack([response(TALL), TALL[:, 3]])), MEMORY),
    "lasso, weak penalty": (lasso(WIDE, alpha=1e-3, tol=1e-4), HERE),
    "lasso, priority": (lasso(WIDE, schedule=schmp.Priority(4), **SCHEDULED), MEMORY),
    "lasso, priority, 2 shards": (
        lasso(WIDE, schedule=schmp.Priority(4), n_shards=2, **SCHEDULED),
        MEMORY,
    ),
    "lasso, priority, pipeline": (
        lasso(WIDE, schedule=schmp.Priority(4, pipeline_depth=3), n_shards=2, **SCHEDULED),
        MEMORY,
    ),
    "lasso, priority, all options": (
        lasso(
            WIDE,
            schedule=schmp.Priority(
                4,
                oversample=3.0,
                correlation_rows=20,
                weight=np.abs,
                refresh=7,
                n_schedulers=2,
                pipeline_depth=2,
                moved_above=1e-3,
            ),
            n_shards=2,
            **SCHEDULED,
        ),
        MEMORY,
    ),
    "lasso, priority without gradients": (
        lasso(TALL, schedule=schmp.Priority(4, refresh=None), weights=WEIGHTS, **SCHEDULED),
        MEMORY,
    ),
    "lasso, random": (lasso(SPARSE, schedule=schmp.Random(4), **SCHEDULED), MEMORY),
    "lasso, round robin": (
        lasso(SMALL_INTEGERS, schedule=schmp.RoundRobin(4), **SCHEDULED),
        MEMORY,
    ),
    "lasso, round robin, pipeline": (
        lasso(TALL, schedule=schmp.RoundRobin(4, pipeline_depth=2), **SCHEDULED),
        MEMORY,
    ),
    "net, tall": (lasso(TALL, l1_ratio=0.5), MEMORY),
    "net, wide, 3 shards": (
        lasso(WIDE, l1_ratio=0.5, n_shards=3, penalty_factors=factors(150)),
        MEMORY,
    ),
    "net, chunks": (
        lasso(TALL, l1_ratio=0.9, weights=PARTS, chunks=30, penalty_factors=factors(12)),
        CHUNKS,
    ),
    "net, sparse": (lasso(SPARSE, l1_ratio=0.2, penalty_factors=factors(150)), MEMORY),
    "net, positive": (
        lasso(WIDE, l1_ratio=0.5, positive=True, penalty_factors=1.0 + factors(150)),
        HERE,
    ),
    "net, float32": (
        lasso(WIDE.astype(np.float32), tol=1e-4, l1_ratio=0.5, penalty_factors=factors(150)),
        HERE,
    ),
    "net, priority": (
        lasso(
            TALL,
            schedule=schmp.Priority(4),
            l1_ratio=0.5,
            penalty_factors=factors(12),
            n_shards=2,
            **SCHEDULED,
        ),
        MEMORY,
    ),
    "lasso, factors": (lasso(SMALL_INTEGERS, n_shards=2, penalty_factors=factors(90)), MEMORY),
    "lasso, warm": (
        warm(lambda: (se.PrioritizedLasso(0.1), WIDE, response(WIDE)), alpha=0.05),
        HERE,
    ),
    "lasso, warm and sparse": (
        warm(lambda: (se.PrioritizedLasso(0.1), SPARSE, response(SPARSE)), alpha=0.05),
        HERE,
    ),
    "path, wide": (path(WIDE), HERE),
    "path, sparse and positive": (path(SPARSE, positive=True), HERE),
    "path, weights": (path(TALL, sample_weight=WEIGHTS), HERE),
    "path, chunks": (path(TALL, chunks=30), CHUNKS),
    "lasso CV": (lasso_cv(WIDE), HERE),
    "lasso CV, chunks": (lasso_cv(TALL, chunks=30), CHUNKS),
    "lasso CV, sparse": (lasso_cv(SPARSE, positive=True), HERE),
    "lasso CV, weights": (lasso_cv(TALL, weights=WEIGHTS + 0.5), HERE),
    "logistic, tall": (logistic(TALL), MEMORY),
    "logistic, wide": (logistic(WIDE), MEMORY),
    "logistic, wide, 3 shards": (logistic(WIDE, n_shards=3), MEMORY),
    "logistic, chunks": (logistic(TALL, chunks=30), CHUNKS),
    "logistic, sparse": (logistic(SPARSE), MEMORY),
    "logistic, int8": (logistic(SMALL_INTEGERS, C=0.5), MEMORY),
    "logistic, float32": (logistic(TALL.astype(np.float32), tol=1e-4), MEMORY),
    "logistic, classes": (logistic(TALL, y=labels(TALL)), MEMORY),
    "logistic, balanced": (logistic(TALL, y=response(TALL) > 2, class_weight="balanced"), MEMORY),
    "logistic, weights": (logistic(TALL, weights=WEIGHTS, fit_intercept=False), MEMORY),
    "logistic, priority": (logistic(TALL, schedule=schmp.Priority(4), **SCHEDULED), MEMORY),
    "logistic, round robin, pipeline": (
        logistic(WIDE, schedule=schmp.RoundRobin(4, pipeline_depth=2), **SCHEDULED),
        MEMORY,
    ),
    "logistic net, tall": (logistic(TALL, l1_ratio=0.5, penalty_factors=factors(12)), MEMORY),
    "logistic net, wide, 3 shards": (
        logistic(WIDE, l1_ratio=0.5, penalty_factors=factors(150), n_shards=3),
        MEMORY,
    ),
    "logistic net, sparse": (
        logistic(SPARSE, l1_ratio=0.8, penalty_factors=factors(150), C=0.2),
        MEMORY,
    ),
    "logistic net, classes on chunks": (
        logistic(
            TALL,
            y=labels(TALL),
            weights=PARTS,
            chunks=30,
            l1_ratio=0.5,
            penalty_factors=factors(12),
        ),
        CHUNKS,
    ),
    "logistic, warm": (
        warm(lambda: (se.SparseLogisticRegression(0.5), WIDE, response(WIDE) > 0), C=1.0),
        HERE,
    ),
    "groups, wide, 3 shards": (groups(WIDE, n_shards=3), MEMORY),
    "groups, chunks": (groups(TALL, weights=WEIGHTS, chunks=30), CHUNKS),
    "groups, sparse, Huber": (groups(SPARSE, loss="huber", alpha=0.01), MEMORY),
    "groups, int8, Poisson": (
        groups(SMALL_INTEGERS, y=np.floor(np.abs(response(SMALL_INTEGERS))), loss="poisson"),
        MEMORY,
    ),
    "classes at once, wide": (classes(WIDE), MEMORY),
    "classes at once, sparse, 2 shards": (classes(SPARSE, n_shards=2), MEMORY),
    "classes at once, net, chunks": (
        classes(TALL, chunks=30, penalty="elasticnet", penalty_factors=factors(12)),
        CHUNKS,
    ),
    "logistic path": (logistic_path(TALL), HERE),
    "logistic path, chunks": (logistic_path(TALL, chunks=30), CHUNKS),
    "logistic CV, chunks": (
        logistic_cv(TALL, response(TALL) > 0, chunks=30, Cs=[1.0], tol=1e-4),
        CHUNKS,
    ),
    "logistic CV": (logistic_cv(TALL, response(TALL) > 0), HERE),
    "logistic CV, classes": (
        logistic_cv(TALL, labels(TALL), class_weight="balanced", scoring="neg_log_loss"),
        HERE,
    ),
}

#: These run at all their places with every change; the others elsewhere than here in the slow lane.
EVERY_CHANGE = {"lasso, chunks", "logistic, wide, 3 shards"}
#: These take long, or compile kernels for integers by rows, and run in the slow lane only.
SLOW = {"lasso, priority, pipeline", "lasso, round robin"}
