"""Fits with checkpoints go on from their own with the same bits.

They refuse all others, and outlive the disk.
"""

import os
import re
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from checkpoints import Dies, dying, fitted_in_spite_of_deaths, full_disk, left_by
from clusters import at
from corpora import SMALL
from oracles.rounds import by_rounds
from toys import Remade, Ring, make_shards

from schmp_estimators import (
    DistributedLDA,
    ModelParallelMF,
    PrioritizedLasso,
    SparseLogisticRegression,
    schmp,
)
from schmp_estimators.core.io import checkpoint as checkpoints
from schmp_estimators.core.io.checkpoint import Checkpoint
from schmp_estimators.exceptions import CheckpointMismatchError, CheckpointWarning

RNG = np.random.default_rng(3)
RATINGS = np.where(RNG.random((20, 15)) < 0.5, RNG.normal(size=(20, 15)), np.nan)
X = RNG.normal(size=(60, 40)) + np.where(np.arange(40) % 5, 0.0, 1e4)
X[:, 7] = 1.0 / 3.0
Y = X[:, 0] - X[:, 1] - X[:, 2] + 0.5 * RNG.normal(size=60)
Y -= Y.mean()


def add(piece, number):
    return piece + number, float(piece.sum())


@schmp.saves(dict)
def totals(state, n_jobs=5):
    """A coroutine whose state has arrays, numbers of NumPy, tuples, and keys that are numbers."""
    state = state or {"found": (), "last": np.float32(0.0), 1: np.arange(2)}
    while len(state["found"]) < n_jobs:
        sums = yield partial(add, number=len(state["found"]))
        last = np.float32(1.1) * state["last"] + np.float32(sum(sums))
        state = {"found": (*state["found"], last), "last": last, 1: state[1] + 1}
        yield schmp.Report({"last": float(last)})
        yield schmp.Save(state, last=len(state["found"]) == n_jobs)
    return state["found"], state[1]


LDA = {"n_components": 3, "max_iter": 4, "random_state": 7, "n_shards": 2}
MF = {**LDA, "tol": 0.0}
EARLY = {"early_stopping": True, "validation_fraction": 0.2, "n_iter_no_change": 99}
#: Priors are learned after ten sweeps.
LEARNED = {
    "doc_topic_prior": "learn",
    "topic_word_prior": "learn",
    "init": "uniform",
    "max_iter": 13,
}
SCHEDULED = {"alpha": 0.05, "random_state": 7, "tol": 1e-5, "n_shards": 2}
KEEPER = schmp.Keeper(lambda piece: (piece,), lambda piece, saved: saved[0])

#: What is fitted, with which parameters, on what.
CASES = {
    **{
        name: (DistributedLDA, {**LDA, "sampler": name}, (SMALL,))
        for name in ("warp", "saber", "light", "fplus", "data-parallel")
    },
    "frozen": (
        DistributedLDA,
        {**LDA, "sampler": "frozen", "evaluate_every": 2, **LEARNED},
        (SMALL,),
    ),
    "hybrid": (
        DistributedLDA,
        {**LDA, "sampler": "hybrid", "n_components": 700, "mh_steps": "acceptance", "max_iter": 6},
        (100 * SMALL,),
    ),
    "sgd": (ModelParallelMF, MF, (RATINGS,)),
    "bsp": (
        ModelParallelMF,
        {**MF, **EARLY, "schedule": "bsp", "learning_rate": 0.03, "evaluate_every": 2},
        (RATINGS,),
    ),
    "ccd": (ModelParallelMF, {**MF, **EARLY, "solver": "ccd"}, (RATINGS,)),
    "bpr": (ModelParallelMF, {**MF, "loss": "bpr"}, (np.where(RATINGS > 0, RATINGS, np.nan),)),
    "implicit": (
        ModelParallelMF,
        {**MF, "solver": "ccd", "unobserved_weight": 0.2},
        (np.abs(RATINGS),),
    ),
    "lasso": (
        PrioritizedLasso,
        {"alpha": 0.01, "tol": 1e-9, "n_shards": 2},
        (X, np.column_stack([Y, Y[::-1]])),
    ),
    "priority": (PrioritizedLasso, {**SCHEDULED, "schedule": schmp.Priority(4)}, (X, Y)),
    "round robin": (PrioritizedLasso, {**SCHEDULED, "schedule": schmp.RoundRobin(4)}, (X, Y)),
    "logistic": (
        SparseLogisticRegression,
        {"tol": 1e-9, "n_shards": 2, "l1_ratio": 0.6, "penalty_factors": 1.0 + np.arange(40) % 3},
        (X, Y > 0),
    ),
    "program": (schmp.run, {"program": Ring(), "sweeps": 4}, (make_shards(3),)),
    "program without blocks": (schmp.run, {"program": Remade(), "sweeps": 4}, (make_shards(3),)),
    "coroutine": (
        schmp.run,
        {"program": totals, "keeper": KEEPER},
        ([np.arange(3.0), np.arange(4.0)],),
    ),
}
#: Of those with the same mechanism one.
FEW = ["warp", "ccd", "lasso", "coroutine"]


def fitted(name, *data, **more):
    """Fit a case, perhaps to other data or with more parameters.

    Return the estimator, or what a program returns.
    """
    make, parameters, given = CASES[name]
    parameters, data = parameters | more, data or given
    if make is not schmp.run:
        return make(**parameters).fit(*data)
    program = parameters.pop("program")
    return schmp.run(program, *data, **parameters)


@pytest.fixture(autouse=True)
def rounds(monkeypatch):
    """Let L1 fits as small as these go by rounds, as larger ones do.

    Those that are solved at once keep no state.
    """
    by_rounds(monkeypatch)


@cache
def checkpoint_of(name):
    """Return what a fit of a case leaves in its checkpoint."""
    with TemporaryDirectory() as folder:
        fitted(name, checkpoint=f"{folder}/state")
        return Path(folder, "state").read_bytes()


every_case = pytest.mark.parametrize("name", CASES)
few_cases = pytest.mark.parametrize("name", FEW)


# Going on.


@every_case
def test_a_fit_that_dies_after_each_checkpoint_has_the_bits_of_one_that_does_not(name, tmp_path):
    again = partial(fitted, name, checkpoint=tmp_path / "state", checkpoint_every=1)
    found, deaths = fitted_in_spite_of_deaths(again)
    assert left_by(found) == left_by(fitted(name))
    assert deaths == sorted(set(deaths)) and len(deaths) >= 2


@few_cases
def test_a_checkpoint_begun_on_a_cluster_is_finished_here_and_the_other_way(name, client, tmp_path):
    expected = left_by(fitted(name))
    for there, here, path in ((client, None, tmp_path / "one"), (None, client, tmp_path / "other")):
        with dying(), pytest.raises(Dies), at(there):
            fitted(name, checkpoint=path, checkpoint_every=2)
        with at(here):
            assert left_by(fitted(name, checkpoint=path)) == expected


@every_case
def test_checkpoints_are_written_as_often_as_asked_for_and_at_the_end(name, monkeypatch, tmp_path):
    written = []
    for method in ("write", "write_behind"):
        monkeypatch.setattr(Checkpoint, method, lambda self, done, values: written.append(done))
    found = fitted(name, checkpoint=tmp_path / "state", checkpoint_every=3)
    n = len(found[0] if isinstance(found, tuple) else found.history_)
    assert written[-1] == n and set(written) == {*range(3, n, 3), n}


@pytest.mark.parametrize("name", ["warp", "ccd", "lasso"])
def test_what_does_not_change_the_result_does_not_matter(name, tmp_path):
    first = fitted(name, checkpoint=tmp_path / "state")
    changes = [
        {"n_jobs": 2},
        {"checkpoint_every": 1},
        {"verbose": 0},
        {"checkpoint": str(tmp_path / "state")},
    ]
    if name == "warp":
        changes.append({"evaluate_every": 1})
    for change in changes:
        again = fitted(name, **{"checkpoint": tmp_path / "state"} | change)
        assert again.history_ == first.history_  # also the seconds: nothing was done again


# Whose it is.


@few_cases
def test_another_version_is_refused(name, tmp_path, monkeypatch):
    fitted(name, checkpoint=tmp_path / "state")
    monkeypatch.setattr(checkpoints, "__version__", "0.0")
    with pytest.raises(
        CheckpointMismatchError, match=r"version: '.*' there, '0.0' here\); give another path"
    ):
        fitted(name, checkpoint=tmp_path / "state")


@pytest.mark.parametrize("name", ["warp", "ccd", "lasso"])
def test_a_subclass_has_checkpoints_of_its_own(name, tmp_path):
    made = fitted(name, checkpoint=tmp_path / "state")
    other = type("Other", (type(made),), {"__init__": type(made).__init__})(**made.get_params())
    with pytest.raises(
        CheckpointMismatchError, match=f"estimator: '{type(made).__name__}' there, 'Other' here"
    ):
        other.fit(*CASES[name][2])


#: Parameters that make it another fit, and by what they are named if not by themselves.
OTHERS = [
    *[("warp", name, value, None) for name, value in {
        "n_components": 4, "doc_topic_prior": 0.2, "topic_word_prior": 0.2, "mh_steps": 1,
        "random_state": 8, "init": "uniform", "sampler": "fplus",
    }.items()],
    ("frozen", "doc_topic_prior", None, "doc_topic_priors"),
    ("light", "mh_steps", 3, None),
    ("light", "n_shards", 3, "n_shards: 2 there, 3 here"),
    *[("sgd", name, value, None) for name, value in {
        "n_components": 4, "alpha": 0.3, "penalty": "per_row", "fit_bias": False, "positive": True,
        "learning_rate": 0.05, "random_state": 8, "n_shards": 3, "schedule": "bsp", "solver": "ccd",
        "early_stopping": True,
    }.items()],
    *[("ccd", name, value, None) for name, value in {
        "n_components": 4, "alpha": 0.3, "fit_bias": False, "positive": True, "n_shards": 3,
    }.items()],
    ("ccd", "validation_fraction", 0.5, "data"),
    ("implicit", "unobserved_weight", 0.3, None),
    ("bpr", "loss", "logistic", None),
    *[("lasso", name, value, None) for name, value in {
        "alpha": 0.02, "fit_intercept": False, "tol": 1e-8, "positive": True,
        "schedule": "round_robin", "max_iter": 999, "l1_ratio": 0.5,
        "penalty_factors": 1.0 + np.arange(40) % 2,
    }.items()],
    ("lasso", "n_shards", 3, "rows"),
    *[("priority", "schedule", schmp.Priority(**{"n_parallel": 4, name: value}), f"schedule {name}")
      for name, value in {
        "n_parallel": 5, "max_correlation": 0.3, "pipeline_depth": 2, "n_schedulers": 2,
        "oversample": 3.0, "correlation_rows": 20, "weight": np.abs, "refresh": None,
        "moved_above": 0.1,
    }.items()],
    ("priority", "schedule", "random", None),
    ("priority", "random_state", 8, None),
    *[("logistic", name, value, None) for name, value in {
        "C": 2.0, "fit_intercept": False, "l1_ratio": 0.5, "penalty_factors": None,
    }.items()],
    ("logistic", "class_weight", {0: 1.0, 1: 2.0}, "data"),
    ("program", "program", Ring(fail_at=99), "parameter fail_at: -1 there, 99 here"),
    ("program", "program", Remade(), "program: 'ring' there, 'remade' here"),
    ("coroutine", "program", partial(totals, n_jobs=6), "parameter n_jobs: None there, 6 here"),
    ("coroutine", "keeper", None, "keeps_partitions"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "value", "named"), OTHERS, ids=[f"{one[0]}-{one[1]}" for one in OTHERS]
)
def test_another_parameter_is_refused_by_name(kind, name, value, named, tmp_path):
    (tmp_path / "state").write_bytes(checkpoint_of(kind))
    with pytest.raises(
        CheckpointMismatchError,
        match=rf"belongs to another fit \(.*{named or name}\b.*; give another",
    ):
        fitted(kind, checkpoint=tmp_path / "state", **{name: value})
    assert (tmp_path / "state").read_bytes() == checkpoint_of(kind)


@pytest.mark.parametrize("name", ["warp", "ccd", "logistic", "program"])
def test_fewer_iterations_than_there_are_in_it_are_refused(name, tmp_path):
    limit = "sweeps" if name == "program" else "max_iter"
    fitted(name, checkpoint=tmp_path / "state")
    with pytest.raises(
        CheckpointMismatchError,
        match=rf"\d iterations behind it, and {limit}=1; raise {limit}, give",
    ):
        fitted(name, checkpoint=tmp_path / "state", **{limit: 1})


def moved_token():
    """Other documents with the same number of tokens, and as many of each word."""
    counts = SMALL.copy()
    a, b = (
        np.flatnonzero((counts[:, 0] > 0) & (counts[:, 1] == 0))[0],
        np.flatnonzero(counts[:, 1] > 0)[0],
    )
    counts[[a, b], [0, 1]] -= 1
    counts[[b, a], [0, 1]] += 1
    assert (counts.sum(axis=0) == SMALL.sum(axis=0)).all() and (
        counts.sum(axis=1) == SMALL.sum(axis=1)
    ).all()
    return counts


def swapped_ratings(row):
    """Other ratings of the same mean and spread."""
    ratings, rated = RATINGS.copy(), np.flatnonzero(np.isfinite(RATINGS[row]))
    ratings[row, rated[:2]] = ratings[row, rated[1::-1]]
    return ratings


def other_data(name):
    """Data that look much the same."""
    given = CASES[name][2]
    if name in ("warp", "frozen", "saber", "light", "fplus", "data-parallel"):
        yield from [
            (one,)
            for one in (SMALL[::-1], SMALL[:, ::-1], moved_token(), SMALL + np.eye(23, 11, -7, int))
        ]
    elif name in ("sgd", "bsp", "ccd"):
        yield from [(one,) for one in (RATINGS[::-1], *map(swapped_ratings, (0, 10, 19)))]
    elif given[0] is X:
        more, y, weights = X.copy(), given[1].copy(), np.ones(60)
        more[-1, -1] += 1.0
        weights[0], y.ravel()[0] = 2.0, not y.ravel()[0]
        yield from [
            (one, given[1])
            for one in (more, X[::-1], X[:, ::-1], X.astype(np.float32), np.asfortranarray(X))
        ]
        yield from [(sp.csr_array(X), given[1]), (X, y), (X, given[1], weights)]
    elif CASES[name][0] is schmp.run:
        yield ([piece + 1 for piece in given[0]],)
        yield (given[0][:-1],)
    else:
        yield (given[0][::-1],)


@every_case
def test_other_data_are_refused(name, tmp_path):
    (tmp_path / "state").write_bytes(checkpoint_of(name))
    for data in other_data(name):
        with pytest.raises(
            CheckpointMismatchError, match=r"belongs to another fit \(.*data: .* there, .* here"
        ):
            fitted(name, *data, checkpoint=tmp_path / "state")


def same_data(name):
    """The same data in other forms, and in another order where that is none of a fit's business."""
    if name == "warp":
        yield from [
            (one,)
            for one in (
                sp.csc_array(SMALL),
                SMALL.astype(np.float32),
                da.from_array(SMALL, (5, 11)),
            )
        ]
    elif name in ("sgd", "ccd"):
        pairs = RNG.permutation(np.argwhere(np.isfinite(RATINGS)))
        yield from [
            (pairs, RATINGS[tuple(pairs.T)]),
            (da.from_array(pairs, (40, 2)), RATINGS[tuple(pairs.T)]),
        ]
    else:
        yield da.from_array(X, (30, 40)), CASES[name][2][1]


@pytest.mark.parametrize("name", ["warp", "sgd", "ccd", "lasso", "logistic"])
def test_the_same_data_in_another_form_go_on(name, tmp_path):
    first = fitted(name, checkpoint=tmp_path / "state")
    for data in same_data(name):
        assert fitted(name, *data, checkpoint=tmp_path / "state").history_ == first.history_


# Places.


def test_home_folders_variables_and_urls_are_read_alike(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    first = fitted("warp", checkpoint="~/runs/state")
    urls = f"file://{tmp_path}/runs/state", tmp_path / "runs/state"
    for same in ("$RUNS/state", "${RUNS}/state", "runs/state", *urls):
        assert fitted("warp", checkpoint=same).history_ == first.history_
    spilled = fitted("warp", spill="~/spilled")
    for same in ("$RUNS/../spilled", "spilled", f"file://{tmp_path}/spilled"):
        assert fitted("warp", spill=same).history_ == spilled.history_
    assert sorted(os.listdir(tmp_path)) == ["runs", "spilled"] and os.listdir(
        tmp_path / "runs"
    ) == ["state"]


@pytest.mark.parametrize("name", ["warp", "ccd", "lasso", "program", "coroutine"])
@pytest.mark.parametrize("bad", ["", "nowhere://bucket/state"])
def test_a_place_that_is_none_is_refused_before_any_work(name, bad):
    nothing = ([pytest.fail],) if CASES[name][0] is schmp.run else (None,) * len(CASES[name][2])
    with pytest.raises(
        ValueError, match=f"checkpoint='{bad}' is no path, and no URL .*give another"
    ):
        fitted(name, *nothing, checkpoint=bad)


@pytest.mark.parametrize("name", ["warp", "sgd", "priority"])
def test_what_cannot_be_known_again_is_refused_before_work(name, tmp_path):
    make, parameters, data = CASES[name]
    for seed in (None, np.random.RandomState(0)):
        with pytest.raises(ValueError, match="checkpoint needs an int as random_state"):
            make(**parameters | {"random_state": seed}, checkpoint=tmp_path / "state").fit(
                *(None,) * len(data)
            )
    known = make(**parameters).fit(*data).set_params(checkpoint=tmp_path / "state")
    if "warm_start" in parameters or hasattr(known, "warm_start"):
        known.set_params(warm_start=True)
        with pytest.raises(ValueError, match=r"set checkpoint=None for .*warm_start"):
            known.fit(*data)
    if hasattr(known, "partial_fit") and not hasattr(known, "half_life"):  # that has streams
        with pytest.raises(ValueError, match="set checkpoint=None for partial_fit"):
            known.partial_fit(*data)
    assert not list(tmp_path.iterdir())


# Disks.


@few_cases
def test_a_full_disk_costs_the_checkpoint_but_not_the_fit(name, tmp_path):
    expected, path = left_by(fitted(name)), tmp_path / "state"
    with full_disk(), pytest.warns(CheckpointWarning) as caught:
        assert left_by(fitted(name, checkpoint=path, checkpoint_every=1)) == expected
    [warning] = [one for one in caught if one.category is CheckpointWarning]
    assert re.search(
        r"state' could not be written after iteration 1 .*No space left on device",
        str(warning.message),
    )
    assert os.listdir(tmp_path) == []


def test_the_best_factors_are_kept_across_an_interruption(tmp_path):
    noisy = sp.random_array((40, 20), density=0.4, rng=np.random.default_rng(1), format="csr")
    noisy.data = np.random.default_rng(3).normal(size=noisy.nnz)
    parameters = {
        "alpha": 0.0,
        "learning_rate": 0.5,
        **EARLY,
        "max_iter": 12,
        "n_shards": None,
        "random_state": 0,
    }
    whole = fitted("sgd", noisy, **parameters)
    best = int(np.argmin([record["validation_rmse"] for record in whole.history_])) + 1
    assert best < 11
    fitted("sgd", noisy, **parameters | {"max_iter": best + 1}, checkpoint=tmp_path / "state")
    assert left_by(fitted("sgd", noisy, **parameters, checkpoint=tmp_path / "state")) == left_by(
        whole
    )
