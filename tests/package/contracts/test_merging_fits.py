"""Fits whose reports are merged on their way have the bits of fits whose reports are not."""

import numpy as np
import pytest

from schmp_estimators import DistributedLDA, ModelParallelMF
from schmp_estimators.core.engine import shards

rng = np.random.default_rng(5)
COUNTS = rng.poisson(0.4, (90, 80))
RATINGS = np.where(rng.random((60, 50)) < 0.5, rng.normal(size=(60, 50)), np.nan)
FITS = {
    "warp": lambda: DistributedLDA(4, max_iter=3, n_shards=9, n_jobs=2, evaluate_every=1, random_state=0).fit(COUNTS),
    "frozen": lambda: DistributedLDA(
        4, max_iter=3, n_shards=9, n_jobs=2, sampler="frozen", evaluate_every=1, random_state=0
    ).fit(COUNTS),
    "saber": lambda: DistributedLDA(
        4, max_iter=3, n_shards=9, n_jobs=2, sampler="saber", evaluate_every=1, random_state=0
    ).fit(COUNTS),
    "fplus": lambda: DistributedLDA(
        4, max_iter=3, n_shards=9, n_jobs=2, sampler="fplus", evaluate_every=1, random_state=0
    ).fit(COUNTS),
    "ccd": lambda: ModelParallelMF(3, max_iter=3, n_shards=9, n_jobs=2, solver="ccd", random_state=0).fit(RATINGS),
    "bsp": lambda: ModelParallelMF(
        3, max_iter=3, n_shards=9, n_jobs=2, schedule="bsp", learning_rate=0.01, evaluate_every=1, random_state=0
    ).fit(RATINGS),
}  # fmt: skip


def left_by(estimator):
    history = [{**record, "seconds": 0.0} for record in estimator.history_]
    names = ("user_factors_", "components_", "user_bias_", "item_bias_")
    return history, [np.asarray(getattr(estimator, name)).tobytes() for name in names if hasattr(estimator, name)]


@pytest.mark.parametrize("kind", FITS)
def test_merging_changes_no_bits(kind, monkeypatch):
    """Each wants its reports to be merged, and is not noticed to get them all."""
    made, merged = shards.Reports.__init__, []

    def note(reports, n_shards, merge, **options):
        merged.append(merge)
        made(reports, n_shards, merge, **options)

    def unmerged(reports, n_shards, merge, **options):
        made(reports, n_shards, None, **options)

    monkeypatch.setattr(shards.Reports, "__init__", note)
    found = left_by(FITS[kind]())
    assert any(merged)
    monkeypatch.setattr(shards.Reports, "__init__", unmerged)
    assert left_by(FITS[kind]()) == found
