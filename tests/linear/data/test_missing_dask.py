"""Workers learn means and standard deviations, with the bits of one process."""

import dask.array as da
import numpy as np
import pytest
from checkpoints import left_by
from clusters import keys_left, kill_workers
from oracles.rounds import by_rounds
from scipy import sparse
from untouchable import make_untouchable

import schmp_estimators as se
from schmp_estimators.linear.programs import choose
from schmp_estimators.linear.programs.joint import ResolveJoint

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 30)) * np.geomspace(0.1, 10.0, 30)
Y = X[:, 0] / 0.1 + X[:, 29] / 10.0 + 0.3 * RNG.normal(size=90)
X[RNG.random(X.shape) < 0.1] = np.nan
OPTIONS = {"missing_values": np.nan, "standardize": True, "tol": 1e-8}
FORMS = {
    "dense": lambda: da.from_array(X, chunks=(30, 7)),
    "sparse": lambda: da.from_array(X, chunks=(30, -1)).map_blocks(sparse.csr_array),
}


@pytest.mark.covering
@pytest.mark.parametrize("rounds", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_workers_threads_and_partitions_in_memory_have_the_same_bits(
    client, monkeypatch, form, rounds
):
    if rounds:
        by_rounds(monkeypatch)
    given, shards = FORMS[form](), se.PrioritizedLasso(0.02, n_shards=3, **OPTIONS)
    whole = sparse.csr_array(X) if form == "sparse" else X
    here = shards.fit(whole, Y, Y**2)
    expected = left_by(here)
    assert np.count_nonzero(here.coef_) > 2
    assert left_by(shards.set_params(n_jobs=2).fit(whole, Y, Y**2)) == expected
    model = se.PrioritizedLasso(0.02, **OPTIONS)
    assert left_by(model.fit(given, Y, Y**2)) == expected
    cv = se.PrioritizedLassoCV(alphas=4, cv=3, **OPTIONS)
    folds = cv.fit(given, Y).mse_path_, cv.coef_
    with client.as_current():
        assert left_by(model.fit(given, Y, Y**2)) == expected
        np.testing.assert_array_equal(cv.fit(given, Y).mse_path_, folds[0])
        np.testing.assert_array_equal(cv.coef_, folds[1])
        np.testing.assert_allclose(model.predict(given), here.predict(whole), rtol=1e-10)
    np.testing.assert_allclose(folds[0], cv.fit(whole, Y).mse_path_, rtol=1e-5)
    assert keys_left(client) == []


def test_the_client_never_has_x(processes):
    given = FORMS["sparse"]().map_blocks(
        make_untouchable, dtype=float, meta=sparse.csr_array((1, 1))
    )
    expected = se.PrioritizedLasso(0.02, **OPTIONS).fit(FORMS["sparse"](), Y)
    with processes.as_current():
        found = se.PrioritizedLasso(0.02, **OPTIONS).fit(given, Y)
        assert left_by(found) == left_by(expected)
    assert keys_left(processes) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning:distributed")
@pytest.mark.parametrize("form", FORMS)
def test_killed_workers_do_not_change_a_bit(monkeypatch, processes, form):
    by_rounds(monkeypatch)
    monkeypatch.setattr("schmp_estimators.core.engine.rounds.KEEP_EVERY", 3)
    model, seen = se.PrioritizedLasso(0.02, **OPTIONS), []
    expected = left_by(model.fit(FORMS[form](), Y))

    class Killing(ResolveJoint):
        def _settle(self, columns, *given, **how):
            seen.append(columns)
            if len(seen) == 1:  # rounds follow
                kill_workers(processes, 1)
            found = yield from super()._settle(columns, *given, **how)
            seen.append("went on")
            return found

    monkeypatch.setattr(choose, "ResolveJoint", Killing)
    with processes.as_current():
        assert left_by(model.fit(FORMS[form](), Y)) == expected
    assert len(seen) > 1
    assert keys_left(processes) == []
