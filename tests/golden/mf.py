"""Matrix factorisation: solvers, schedules, penalties, forms of input, ways to go on."""

import dask.array as da
import numpy as np
from golden.record import result
from scipy import sparse

from schmp_estimators import DistributedSLIM, ModelParallelMF

EVERYWHERE = ("here", "threads", "cluster", "dask")
HERE = ("here",)

N_USERS, N_ITEMS = 40, 25
_RNG = np.random.default_rng(0)
_OBSERVED = _RNG.random((N_USERS, N_ITEMS)) < 0.4
_OBSERVED[7], _OBSERVED[:, 5] = False, False
PAIRS = np.argwhere(_OBSERVED)
RATINGS = (
    2.5 + (_RNG.normal(size=(N_USERS, 2)) @ _RNG.normal(size=(2, N_ITEMS)))[_OBSERVED]
).astype(np.float32)
MATRIX = sparse.csr_array((RATINGS, PAIRS.T), shape=(N_USERS, N_ITEMS))
DENSE = np.full((N_USERS, N_ITEMS), np.nan, np.float32)
DENSE[_OBSERVED] = RATINGS


def make(place="here", **parameters):
    threads = {"n_jobs": 2} if place == "threads" else {}
    given = {
        "n_components": 3,
        "max_iter": 5,
        "tol": 0.0,
        "random_state": 0,
        "n_users": N_USERS,
        "n_items": N_ITEMS,
    }
    return ModelParallelMF(**given | {"alpha": 0.07} | threads | parameters)


def described(mf, place):
    """Return what a fitted model is remembered by."""
    pairs = np.argwhere(np.ones((4, N_ITEMS)))
    predicted = np.asarray(mf.predict(PAIRS))
    one_row = sparse.vstack([MATRIX[[0]], sparse.csr_array((2, N_ITEMS))])
    items, scores = mf.recommend([0, 7, 3], n=4, exclude=None if place == "dask" else one_row)
    arrays = {"items": items, "scores": scores} if place != "dask" else {}
    return result(
        {"rmse": np.sqrt(np.mean((predicted - RATINGS) ** 2))},
        components=mf.components_,
        user_factors=mf.user_factors_,
        user_bias=mf.user_bias_,
        item_bias=mf.item_bias_,
        mean=mf.global_mean_,
        n_iter=mf.n_iter_,
        predicted=predicted,
        others=np.asarray(mf.predict(pairs)),
        folded=np.asarray(mf.transform(DENSE[:9])),
        **arrays,
    )


def fit(**parameters):
    """Fit on pairs; on Dask they are in chunks."""

    def run(place):
        given = PAIRS, RATINGS
        if place == "dask":
            given = da.from_array(PAIRS, chunks=(90, 2)), da.from_array(RATINGS, chunks=90)
        return described(make(place, **parameters).fit(*given), "here")

    return run


def matrix(X, **parameters):
    """Fit on a matrix; on Dask its rows are in chunks."""

    def run(place):
        given = da.from_array(X, chunks=(15, N_ITEMS)) if place == "dask" else X
        return described(make(place, **parameters).fit(given), "here")

    return run


def partial(**parameters):
    def run(place):
        mf = make(place, **parameters)
        for part in np.array_split(np.arange(len(PAIRS)), 3):
            mf.partial_fit(PAIRS[part], RATINGS[part])
        return described(mf, place)

    return run


def slim(n_calls=1, **parameters):
    """Fit an item model on counts, the last ones by `partial_fit`."""

    def run(place):
        model = DistributedSLIM(n_jobs=2 if place == "threads" else None, **parameters)
        for part in np.array_split(np.arange(len(PAIRS)), n_calls):
            given = PAIRS[part], np.round(np.abs(RATINGS[part])) + 1
            if place == "dask":
                given = tuple(
                    da.from_array(array, chunks=(90, *array.shape[1:])) for array in given
                )
            model.partial_fit(*given)
        items, scores = model.recommend(model.user_ids_, n=4)
        return result(
            {"loss": model.dual_gap_.sum() + float(model.coef_.sum())},
            coef=model.coef_,
            gap=model.dual_gap_,
            n_iter=model.n_iter_,
            items=items,
            scores=scores,
        )

    return run


#: By name: what runs, and where all give the same bits.
CASES = {
    "defaults": (fit(max_iter=20, tol=1e-4, n_components=20, alpha="auto"), EVERYWHERE),
    "sgd, 1 shard": (fit(n_shards=1), EVERYWHERE),
    "sgd, 3 shards": (fit(n_shards=3), EVERYWHERE),
    "sgd, small steps, per row": (
        fit(n_shards=2, learning_rate=0.02, penalty="per_row", alpha=1.0),
        EVERYWHERE,
    ),
    "sgd, no biases": (fit(n_shards=3, fit_bias=False), EVERYWHERE),
    "sgd, positive": (fit(positive=True), HERE),
    "sgd, 17 factors": (fit(n_components=17, n_shards=2), HERE),
    "sgd, early stopping": (
        fit(max_iter=60, early_stopping=True, n_iter_no_change=2, n_shards=2),
        EVERYWHERE,
    ),
    "sgd, evaluated": (fit(max_iter=60, evaluate_every=1, tol=0.01), HERE),
    "sgd, sparse": (matrix(MATRIX), HERE),
    "sgd, dense": (matrix(DENSE, n_shards=3), EVERYWHERE),
    "sgd, partial_fit": (partial(n_shards=2), ("here", "threads", "cluster")),
    "bsp, 1 shard": (fit(schedule="bsp", n_shards=1), HERE),
    "bsp, 3 shards": (fit(schedule="bsp", n_shards=3), EVERYWHERE),
    "ccd, 1 shard": (fit(solver="ccd", n_shards=1), EVERYWHERE),
    "ccd, 3 shards": (fit(solver="ccd", n_shards=3), EVERYWHERE),
    "ccd, positive": (fit(solver="ccd", n_shards=2, positive=True), HERE),
    "ccd, no biases, per row": (
        fit(solver="ccd", n_shards=2, fit_bias=False, penalty="per_row", alpha=1.0),
        EVERYWHERE,
    ),
    "ccd, early stopping": (
        fit(solver="ccd", max_iter=60, early_stopping=True, n_iter_no_change=2),
        EVERYWHERE,
    ),
    "ccd, tolerance": (fit(solver="ccd", max_iter=100, tol=1e-3), HERE),
    "ccd, sparse": (matrix(MATRIX, solver="ccd"), HERE),
    "ccd, dense": (matrix(DENSE, solver="ccd", n_shards=3), EVERYWHERE),
    "ccd, partial_fit": (partial(solver="ccd"), HERE),
    "slim": (slim(l2_reg=5.0), EVERYWHERE),
    "slim, partial_fit": (slim(3, l1_reg=1.0, l2_reg=2.0, max_neighbors=6), EVERYWHERE),
    "slim, weighted": (
        slim(l2_reg=1.0, user_weight=0.3, confidence=np.log1p, tol=1e-5),
        EVERYWHERE,
    ),
    "clicks, 1 shard": (fit(solver="ccd", n_shards=1, unobserved_weight=0.1), EVERYWHERE),
    "clicks, 3 shards": (
        fit(solver="ccd", n_shards=3, unobserved_weight=0.1, n_components=11),
        EVERYWHERE,
    ),
}

#: These run at all their places with every change; the others elsewhere than here in the slow lane.
EVERY_CHANGE = {"clicks, 3 shards"}
