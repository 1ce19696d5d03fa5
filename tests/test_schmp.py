"""The public programming model, and the two programs that the documentation writes with it."""

from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import dask
import numpy as np
import pytest
from pages import example
from sklearn.decomposition import non_negative_factorization
from sklearn.svm import LinearSVC
from toys import Remade, Ring, bits, make_shards

from schmp_estimators import schmp
from schmp_estimators.exceptions import CheckpointMismatchError

svm, rotation = example("plot_your_own_svm"), example("plot_your_own_rotation")


# Static programs


def by_definition(program, n_shards, sweeps):
    return schmp.run(program, make_shards(n_shards), sweeps=sweeps, engine="serial")


@pytest.mark.parametrize("program", [Ring(), Remade()], ids=lambda program: program.name)
def test_run_equals_the_serial_engine(in_place, program):
    records, harvest = by_definition(program, 3, sweeps=4)
    found, harvested = schmp.run(program, make_shards(3), sweeps=4)
    assert found == records
    assert [record["sweep"] for record in found] == [0, 1, 2, 3]
    assert bits(harvested) == bits(harvest)


@pytest.mark.parametrize("engine", ["auto", "serial"])
def test_callback_ends_the_run(in_place, engine):
    seen = []

    def stop(record):
        seen.append(record)
        return record["sweep"] == 1

    records, harvest = schmp.run(Ring(), make_shards(2), sweeps=9, engine=engine, callback=stop)
    assert records == seen
    expected = by_definition(Ring(), 2, sweeps=2)
    assert bits((records, harvest.blocks)) == bits((expected[0], expected[1].blocks))


class Nameless(Ring):
    name = None


class NoBarrier(Ring):
    def schedule(self, sweep, n_shards):
        return super().schedule(sweep, n_shards)[:1]


class Unkeepable(Ring):
    def save(self, at, state):
        return {"seen": {1, 2}}


def test_a_state_that_cannot_be_kept_is_refused_before_the_first_sweep(in_place, tmp_path):
    seen = []
    with pytest.raises(TypeError, match=r"checkpoint cannot keep shards\[0\]\.seen, of type set"):
        schmp.run(
            Unkeepable(),
            make_shards(3),
            sweeps=2,
            checkpoint=tmp_path / "run.npz",
            callback=seen.append,
        )
    assert not seen


class Pair(NamedTuple):
    left: object
    right: object


def fail(*args):
    raise ZeroDivisionError("mine")


CALLED = {
    "init": "at", "report": "at, state", "aggregate": "model, reports", "record": "sweep, model",
    "save": "at, state", "restore": "at, saved", "harvest": "at, state", "harvest_block": "block",
    "combine": "index, parts", "schedule": "sweep, n_shards", "n_blocks": "n_shards",
    "harvesting": "n_shards",
}  # fmt: skip


@pytest.mark.parametrize("method", CALLED)
def test_signatures_are_checked_before_any_work(method):
    def wrong(self):
        pytest.fail("it was called")

    program = type("Wrong", (Ring,), {method: wrong})()
    expected = rf"Wrong\.{method} is called as Wrong\.{method}\({CALLED[method]}\), and defined"
    with pytest.raises(TypeError, match=expected):
        schmp.run(program, make_shards(2), sweeps=2, callback=fail)


FAILING = {
    "init": "before the first sweep, shard 0", "report": "before the first sweep, shard 0",
    "combine": "before the first sweep, block 0", "aggregate": "before the first sweep",
    "schedule": "sweep 0", "record": "sweep 0", "harvest": "sweep 1, shard 0",
    "harvest_block": "sweep 1, block 0",
}  # fmt: skip


@pytest.mark.parametrize("method", FAILING)
def test_errors_of_methods_say_where_they_were_raised(method):
    program = type("Wrong", (Ring,), {method: fail})()
    with pytest.raises(ZeroDivisionError) as caught:
        schmp.run(program, make_shards(1), sweeps=2, engine="serial")
    assert f"in Wrong.{method}, {FAILING[method]}" in caught.value.__notes__


def failing(state):
    yield partial(add, number=1)
    yield fail


def paired(state):
    yield lambda piece: Pair(piece, 0)


def test_errors_of_jobs_name_the_piece_the_round_and_the_program():
    with pytest.raises(ZeroDivisionError) as caught:
        schmp.run(failing, PARTITIONS)
    assert caught.value.__notes__ == ["in fail, piece 0", "in round 2 of failing"]


class Odd(Ring):
    def init(self, at):
        return Pair(*super().init(at))


class Kept(Ring):
    def aggregate(self, model, reports):
        return {1, 2}


class Told(Ring):
    def record(self, sweep, model):
        return 3


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (Odd(), "init must return a state and a dict of parts of blocks.* got one Pair"),
        (Kept(), "a checkpoint cannot keep model, of type set"),
        (Told(), "the record of Told is one int; it must be a dict"),
    ],
)
def test_what_methods_return_is_checked_without_a_checkpoint(program, said):
    with pytest.raises(TypeError, match=said):
        schmp.run(program, make_shards(2), sweeps=1)


def test_a_named_tuple_is_no_piece_with_an_answer():
    with pytest.raises(TypeError, match=r"returned one Pair; a job returns \(piece, answer\)"):
        schmp.run(paired, PARTITIONS)


@schmp.saves(dict)
def reporting(state):
    """Reports its state, saves it, and works."""
    done = state["done"] if state else 0
    while done < 4:
        yield schmp.Report({"done": done})
        yield schmp.Save({"done": done}, last=True)
        yield work
        done += 1
    return done


def work(piece):
    return piece, 0.0


def test_reports_before_a_save_are_not_repeated(tmp_path, monkeypatch):
    whole = schmp.run(reporting, PARTITIONS)
    assert [record["done"] for record in whole[0]] == [0, 1, 2, 3]
    path = tmp_path / "state"
    for _ in range(3):
        with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
            patch.setitem(globals(), "work", fail)
            schmp.run(reporting, PARTITIONS, checkpoint=path)
    assert schmp.run(reporting, PARTITIONS, checkpoint=path) == whole


# Coroutines


def add(partition, number):
    return partition + number, float(partition.sum())


def spoil(partition, number):
    partition += 1
    return partition, 0.0


def totals(state, job=add, n_jobs=4):
    """Adds 0, 1, 2, … to every number; the answers are the sums before."""
    found = []
    while len(found) < n_jobs:
        found.append(schmp.tree_sum((yield partial(job, number=len(found)))))
        if (yield schmp.Report({"total": found[-1]})):
            break
    return found


def ask(partition, number):
    return partition, float((partition**number).sum())


class Total:
    """Adds one to every number, four times; jobs overlap."""

    def __init__(self, depth):
        self.n_begun, self.depth = 0, depth

    def schedule(self, model):
        if self.n_begun == 4:
            return None
        self.n_begun += 1
        assert self.n_begun - len(model) <= self.depth
        return 1

    @staticmethod
    def update(partition, job):
        return add(partition, job)

    def aggregate(self, model, job, partials):
        model.append(schmp.tree_sum(partials))


def overlapping(state, depth):
    model = []
    yield schmp.Overlapping(Total(depth), model, depth)
    return model


PARTITIONS = [np.arange(3.0), np.arange(4.0)]


def test_pieces_keep_their_state_and_may_be_callable(in_place):
    expected = [9.0, 9.0, 16.0, 30.0]
    records, found = schmp.run(totals, PARTITIONS)
    assert found == expected and records == [{"total": total} for total in expected]
    assert schmp.run(totals, [partial(np.arange, 3.0), partial(np.arange, 4.0)])[1] == expected
    assert PARTITIONS[0].tolist() == [0.0, 1.0, 2.0]


def test_callback_is_the_answer_to_a_report(in_place):
    assert schmp.run(totals, PARTITIONS, callback=lambda record: record["total"] == 16.0)[1] == [
        9.0,
        9.0,
        16.0,
    ]


@pytest.mark.parametrize("depth", [1, 3])
def test_rounds_that_overlap(in_place, depth):
    assert schmp.run(partial(overlapping, depth=depth), PARTITIONS)[1] == [9.0, 16.0, 23.0, 30.0]


def test_writing_into_a_piece_raises(in_place):
    with pytest.raises(ValueError, match="read-only"):
        schmp.run(partial(totals, job=spoil), PARTITIONS)


@schmp.saves(dict)
def scaled(factor, state, job=ask):
    answers = yield partial(job, number=1)
    yield schmp.Save({"sum": factor * sum(answers)}, last=True)


def test_arguments_by_place_are_parameters_too(tmp_path):
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        schmp.run(partial(scaled, 2.0), PARTITIONS, checkpoint=tmp_path / "run.npz")
        schmp.run(partial(scaled, 2.0), PARTITIONS, checkpoint=tmp_path / "run.npz")
        with pytest.raises(CheckpointMismatchError, match="parameter "):
            schmp.run(partial(scaled, 3.0), PARTITIONS, checkpoint=tmp_path / "run.npz")


def no_job(state):
    yield 3


STATIC = {"program": Ring(), "data": make_shards(2), "sweeps": 1}
COROUTINE = {"program": totals, "data": PARTITIONS}
KEPT = {"program": partial(scaled, 1), "checkpoint": "x"}


@pytest.mark.parametrize(
    ("arguments", "change", "error", "message"),
    [
        (STATIC, {"program": Ring}, TypeError, "call it to make one"),
        (
            STATIC,
            {"program": SimpleNamespace()},
            TypeError,
            "or a function that returns a generator of jobs",
        ),
        (STATIC, {"program": Nameless()}, TypeError, "Nameless has no name; give the class one"),
        (
            STATIC,
            {"program": NoBarrier()},
            ValueError,
            "last stage of a sweep must be each or observes",
        ),
        (STATIC, {"data": []}, ValueError, r"data=\[\] is empty; at least one"),
        (STATIC, {"data": np.zeros(3)}, TypeError, "data must be a list of pieces, got ndarray"),
        (STATIC, {"sweeps": None}, ValueError, "sweeps=None must be an integer of at least 1"),
        (STATIC, {"sweeps": 0}, ValueError, "sweeps=0 must be an integer of at least 1"),
        (STATIC, {"sweeps": 2.0}, ValueError, r"sweeps=2\.0 must be an integer"),
        (STATIC, {"checkpoint_every": 0}, ValueError, "checkpoint_every=0 must be"),
        (
            STATIC,
            {"engine": "serial", "checkpoint": "x"},
            ValueError,
            "checkpoint='x' needs engine='auto'",
        ),
        (STATIC, {"keeper": schmp.Keeper(len, len)}, ValueError, "is for coroutines"),
        (STATIC, {"engine": "dynamic"}, ValueError, "engine='dynamic' is unknown; use one of"),
        (STATIC, {"callback": 3}, TypeError, "callback=3 must be a function"),
        (STATIC, {"n_jobs": 0}, ValueError, "n_jobs=0 has no meaning; use None"),
        (COROUTINE, {"program": no_job}, TypeError, "no_job yields 3; a job is a function"),
        (COROUTINE, {"program": lambda state: 3}, TypeError, "which is no generator"),
        (COROUTINE, {"sweeps": 3}, ValueError, "sweeps=3 is for static programs"),
        (COROUTINE, {"engine": "serial"}, ValueError, "engine='serial' is for static programs"),
        (COROUTINE, {"data": ()}, ValueError, r"data=\(\) is empty"),
        (COROUTINE, {"data": "ab"}, TypeError, "data must be a list of pieces, got str"),
        (COROUTINE, {"callback": "print"}, TypeError, "callback='print' must be a function"),
        (
            COROUTINE,
            {"checkpoint": "x"},
            ValueError,
            "a program that saves its state, which totals does not",
        ),
        (
            COROUTINE,
            {"program": partial(scaled, 1, job=add), "checkpoint": "x"},
            ValueError,
            "needs a keeper",
        ),
        (KEPT, {"data": [lambda: np.arange(3.0)]}, TypeError, "functions that stand"),
    ],
)
def test_bad_arguments(arguments, change, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        schmp.run(**arguments | change)
    assert not list(tmp_path.iterdir())


# The support vector machine


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 30))
    return X, np.where(X[:, :5].sum(axis=1) + rng.normal(size=120) > 0, 1.0, -1.0)


def test_svm_finds_what_liblinear_finds(rows):
    (X, y), C = rows, 0.01
    records, alpha = svm.fit(X, y, C=C, tol=1e-10, max_updates=200_000, n_slices=3)
    peer = LinearSVC(
        C=C, loss="hinge", fit_intercept=False, tol=1e-10, max_iter=10**6, random_state=0
    ).fit(X, y)
    coef = peer.coef_[0]
    objective = coef @ coef / 2 + C * np.maximum(0, 1 - y * (X @ coef)).sum()
    # objective and gap anew, from what the program returns
    weights = X.T @ (alpha * y)
    primal = weights @ weights / 2 + C * np.maximum(0, 1 - y * (X @ weights)).sum()
    gap = primal - (alpha.sum() - weights @ weights / 2)
    assert 0 <= alpha.min() <= alpha.max() <= C
    assert -1e-12 < gap < 2e-10 * primal
    np.testing.assert_allclose(records[-1]["objective"], objective, rtol=1e-9)
    np.testing.assert_allclose(weights, coef, atol=1e-5 * abs(coef).max())


# The Poisson factorisation


def counts(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.poisson(rng.gamma(0.5, size=(31, 4)) @ rng.gamma(0.5, size=(4, 23)))
    X[0], X[:, 0] = 1, 1
    return X.astype(float), rng.uniform(0.1, 1, (31, 4)), rng.uniform(0.1, 1, (23, 4))


def poisson_shards(n_shards):
    X, documents, words = counts()
    return rotation.make_shards(rotation.sparse.csr_array(X), documents, words, n_shards)


@pytest.mark.parametrize("n_shards", [1, 4])
def test_poisson_takes_the_steps_of_multiplicative_updates(n_shards):
    X, documents, words = counts()
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        records, harvest = schmp.run(
            rotation.PoissonFactorization(), poisson_shards(n_shards), sweeps=25
        )
    options = {
        "solver": "mu",
        "beta_loss": "kullback-leibler",
        "tol": 0,
        "max_iter": 25,
        "init": "custom",
    }
    _, expected, _ = non_negative_factorization(
        X, documents.copy(), words.T.copy(), n_components=4, **options
    )
    np.testing.assert_allclose(np.concatenate(harvest.blocks).T, expected, rtol=1e-8, atol=1e-12)
    curve = [record["log_likelihood"] for record in records]
    assert (np.diff(curve) > 0).all()
    # the likelihood is that of the documents' new factors with the words' old ones
    for _ in range(2):
        documents *= (X / (documents @ words.T)) @ words / words.sum(axis=0)
        means = documents @ words.T
        words *= (X / means).T @ documents / documents.sum(axis=0)
        np.testing.assert_allclose(curve.pop(0), np.sum(X * np.log(means) - means), rtol=1e-10)
