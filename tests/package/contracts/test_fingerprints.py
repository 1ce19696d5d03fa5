"""Whose checkpoint a file is: each thing that makes it another fit, and each that does not."""

import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from schmp_estimators import DistributedLDA, ModelParallelMF
from schmp_estimators.core.io import checkpoint
from schmp_estimators.core.io.checkpoint import CheckpointMismatchError, read_checkpoint, write_checkpoint

rng = np.random.default_rng(0)
COUNTS = sp.csr_array(rng.poisson(0.6, (30, 12)))
RATINGS = sp.random_array((40, 20), density=0.4, rng=np.random.default_rng(1), format="csr")


class OtherLDA(DistributedLDA):
    """The same by another name."""


class OtherMF(ModelParallelMF):
    """The same by another name."""


CASES = {
    "warp": (DistributedLDA(3, sampler="warp", n_shards=2, max_iter=4, random_state=0), COUNTS),
    "fplus": (DistributedLDA(3, sampler="fplus", n_shards=2, max_iter=4, random_state=0), COUNTS),
    "frozen": (DistributedLDA(3, sampler="frozen", n_shards=2, max_iter=4, random_state=0), COUNTS),
    "saber": (DistributedLDA(3, sampler="saber", n_shards=2, max_iter=4, random_state=0), COUNTS),
    "sgd": (ModelParallelMF(3, n_shards=2, max_iter=4, tol=0.0, random_state=0), RATINGS),
    "ccd": (ModelParallelMF(3, solver="ccd", n_shards=2, max_iter=4, tol=0.0, random_state=0), RATINGS),
}


@pytest.fixture(params=CASES)
def case(request, tmp_path):
    """An estimator with a checkpoint, and its data; the checkpoint is written."""
    estimator, X = CASES[request.param]
    estimator = clone(estimator).set_params(checkpoint=tmp_path / "state")
    clone(estimator).fit(X)
    return estimator, X


def refused(estimator, X, field):
    with pytest.raises(CheckpointMismatchError, match=rf"[(; ]{field}: "):
        clone(estimator).fit(X)


def test_another_class_is_refused(case):
    estimator, X = case
    other = OtherLDA if isinstance(estimator, DistributedLDA) else OtherMF
    refused(other(**estimator.get_params()), X, "estimator")


def test_another_version_is_refused(case, monkeypatch):
    for name, module in list(sys.modules.items()):
        if name.startswith("schmp_estimators.") and hasattr(module, "__version__"):
            monkeypatch.setattr(module, "__version__", "another")
    refused(*case, "version")


def test_other_data_of_the_same_sizes_are_refused(case):
    estimator, X = case
    columns_reversed = sp.csr_array(X[:, ::-1])
    assert not np.array_equal(columns_reversed.toarray(), X.toarray())
    refused(estimator, columns_reversed, "data")
    for row in (0, 11, 22, X.shape[0] - 1):  # in whichever shard
        other = X.copy()
        other.data[X.indptr[row]] += 1
        refused(estimator, other, "data")


def test_ratings_that_change_places_are_noticed_in_every_shard(case):
    """Their mean and their spread stay what they were."""
    estimator, X = case
    for row in (0, 11, 22, X.shape[0] - 1):
        first, second = X.indptr[row], X.indptr[row + 1] - 1
        other = X.copy()
        other.data[[first, second]] = other.data[[second, first]]
        if other.data[first] != other.data[second]:
            refused(estimator, other, "data")


def test_another_seed_or_number_of_components_is_refused(case):
    estimator, X = case
    refused(clone(estimator).set_params(random_state=1), X, "seed")
    refused(clone(estimator).set_params(n_components=4), X, "n_components")


def test_other_shards_are_refused_where_they_make_another_result(case):
    estimator, X = case
    other = clone(estimator).set_params(n_shards=3)
    if getattr(estimator, "sampler", "") in ("warp", "frozen", "saber"):
        other.fit(X)
    else:
        with pytest.raises(CheckpointMismatchError, match="n_shards: 2 there, 3 here"):
            other.fit(X)


def test_what_does_not_change_the_result_does_not_matter(case):
    estimator, X = case
    first = clone(estimator).fit(X)
    for changes in ({"evaluate_every": 1}, {"n_jobs": 2}, {"checkpoint_every": 1}, {"max_iter": 6}):
        again = clone(estimator).set_params(**changes).fit(X)
        # not one sweep of the first four was made again: else they would have taken another time
        assert again.history_[:4] == first.history_
        assert again.n_iter_ == changes.get("max_iter", 4)


@pytest.mark.parametrize("every", [1, 3, 10])
@pytest.mark.parametrize("name", CASES)
def test_the_state_is_written_every_so_often_and_at_the_end(name, every, tmp_path):
    estimator, X = CASES[name]
    place = tmp_path / "state"
    estimator = clone(estimator).set_params(checkpoint=place, checkpoint_every=every)
    written = []

    class Watching(type(estimator)):
        """Notes what is in the file before each sweep."""

        def _has_converged(self):
            if len(self.history_) > self.n_iter_ - 1:  # after a sweep, not on resuming
                deadline = time.monotonic() + 20  # a thread writes it
                while self.n_iter_ >= every and not place.exists() and time.monotonic() < deadline:
                    time.sleep(0.001)
                written.append(place.exists())
            return False

    watched = Watching(**estimator.get_params()).fit(X)
    assert written == [done >= every for done in range(1, 5)]
    assert Watching(**estimator.get_params()).fit(X).history_ == watched.history_


def test_the_best_factors_are_kept_across_an_interruption(tmp_path):
    noisy = RATINGS.copy()
    noisy.data = np.random.default_rng(3).normal(size=noisy.nnz)
    model = ModelParallelMF(
        4, alpha=0.0, learning_rate=0.5, early_stopping=True, n_iter_no_change=99, max_iter=12, random_state=0
    )
    whole = clone(model).fit(noisy)
    errors = [record["validation_rmse"] for record in whole.history_]
    best = int(np.argmin(errors)) + 1
    assert best < 11
    model.set_params(checkpoint=tmp_path / "state")
    clone(model).set_params(max_iter=best + 1).fit(noisy)
    np.testing.assert_array_equal(clone(model).fit(noisy).components_, whole.components_)


def test_a_file_of_another_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT", 99)
    write_checkpoint(tmp_path / "state", {"data": 1}, [1])
    monkeypatch.undo()
    with pytest.raises(CheckpointMismatchError, match="format: 99 there, 1 here"):
        read_checkpoint(tmp_path / "state", {"data": 1})


def test_what_only_the_file_or_only_the_fit_names_is_a_difference(tmp_path):
    write_checkpoint(tmp_path / "state", {"data": 1, "more": 2}, [1])
    with pytest.raises(CheckpointMismatchError, match="more: 2 there, None here"):
        read_checkpoint(tmp_path / "state", {"data": 1})
    with pytest.raises(CheckpointMismatchError, match="other: None there, 3 here"):
        read_checkpoint(tmp_path / "state", {"data": 1, "more": 2, "other": 3})
