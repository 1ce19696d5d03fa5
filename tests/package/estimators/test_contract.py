"""What every transformer of this package keeps to, beside scikit-learn's own checks."""

import pickle
from contextlib import nullcontext
from functools import partial

import numpy as np
import pandas as pd
import pytest
from checkpoints import left_by
from corpora import NAMES, SMALL
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from schmp_estimators import DistributedLDA, ModelParallelMF

MF = partial(ModelParallelMF, n_components=3, max_iter=3, random_state=0)
LDA = partial(DistributedLDA, n_components=3, max_iter=4, random_state=7)
CASES = {
    "lda": (LDA, SMALL),
    "lda on a cluster": (LDA, SMALL),
    "sgd": (MF, SMALL),
    "ccd": (partial(MF, solver="ccd", n_shards=2), SMALL),
    "clicks": (partial(MF, solver="ccd", n_shards=2, unobserved_weight=0.3), SMALL),
    "bpr": (partial(MF, loss="bpr", n_shards=2), np.where(SMALL > 0, SMALL, np.nan)),
}


@pytest.fixture(
    params=[pytest.param(one, marks=pytest.mark.slow) if "cluster" in one else one for one in CASES]
)
def case(request):
    """A function that makes an estimator, and its data."""
    on_cluster = "cluster" in request.param
    with request.getfixturevalue("client").as_current() if on_cluster else nullcontext():
        yield CASES[request.param]


@pytest.mark.parametrize(
    "copy",
    [
        clone,
        lambda fitted: type(fitted)().set_params(**fitted.get_params()),
        lambda fitted: pickle.loads(pickle.dumps(clone(fitted))),
        lambda fitted: type(fitted)(**fitted.get_params()),
    ],
    ids=["clone", "set_params", "pickle", "constructor"],
)
def test_a_copy_is_unfitted_and_fits_the_same(case, copy):
    make, X = case
    fitted = make().fit(X)
    copied = copy(fitted)
    for method in ("transform", "get_feature_names_out"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(copied, method)(X)
    assert left_by(copied.fit(X)) == left_by(fitted)


def test_pickle_keeps_parameters_model_and_results(case):
    make, X = case
    fitted = make().fit(X)
    loaded = pickle.loads(pickle.dumps(fitted))
    assert loaded.get_params() == fitted.get_params()
    assert left_by(loaded) == left_by(fitted)
    np.testing.assert_array_equal(loaded.transform(X), fitted.transform(X))


def test_the_input_is_not_written_to_and_a_second_fit_forgets_the_first(case):
    make, X = case
    given = X.copy()
    given.flags.writeable = False
    estimator = make().fit(X[:, :5]).fit(given)
    estimator.transform(given)
    np.testing.assert_array_equal(given, X)
    assert left_by(estimator) == left_by(make().fit(X))


def test_names_of_columns_are_no_matter(case):
    make, X = case
    (found, records), (expected, others) = (
        left_by(make().fit(one)) for one in (pd.DataFrame(X, columns=NAMES), X)
    )
    assert records == others
    assert all(
        found[name] == expected[name] for name in expected if not name.startswith("feature_names")
    )


def test_a_failed_fit_leaves_all_as_it_was(case):
    make, X = case
    estimator, bad = make(), X[:, :5].astype(float)
    bad[-1, -1] = np.inf  # it is refused when values are looked at
    with pytest.raises(ValueError):
        estimator.fit(bad)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        estimator.transform(X)
    assert not [name for name in vars(estimator) if name.endswith("_")]
    expected, state = estimator.fit(X).transform(X), dict(vars(estimator))
    with pytest.raises(ValueError):
        estimator.fit(bad)
    assert vars(estimator) == state
    np.testing.assert_array_equal(estimator.transform(X), expected)
