"""What a fit says of itself in the log, and beside its progress bar."""

import logging
import re

import numpy as np
import pytest
from callbacks import AfterSweeps
from corpora import SMALL
from numba import njit

from schmp_estimators import DistributedLDA, HeldOutPerplexity, ModelParallelMF, PrioritizedLasso
from schmp_estimators.core.progress import in_units

NUMBER = r"\d[\d.]*( [kMG])?"


def make(**parameters):
    return DistributedLDA(**{"n_components": 4, "max_iter": 25, "init": "uniform", "random_state": 7} | parameters)


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "schmp_estimators.core.progress")
    return lambda: [one.message for one in caplog.records if one.name == "schmp_estimators.core.progress"]


def test_the_log_has_a_line_after_every_ten_sweeps_and_at_the_end(lines):
    lda = make(evaluate_every=4).fit(SMALL)
    values = {one["iterations"]: one["log_likelihood"] for one in lda.history_ if "log_likelihood" in one}
    expected = zip((10, 20, 25), (8, 20, 24), strict=True)
    for line, (sweep, evaluated) in zip(lines(), expected, strict=True):
        start = f"DistributedLDA: sweep {sweep} of 25, log_likelihood {values[evaluated]:.6g}, "
        assert re.fullmatch(re.escape(start) + NUMBER + " samples/s", line)


@pytest.mark.parametrize("digits", [2, 3, 4])
def test_numbers_in_units_are_rounded_and_have_no_exponent(digits):
    values = np.concatenate([np.geomspace(1, 9e11, 997), 10.0 ** np.arange(12) * 0.99999, [9999, 999_500, 9.96e8]])
    for value in values:
        text = in_units(value, digits)
        assert re.fullmatch(NUMBER, text), text
        number, _, unit = text.partition(" ")
        assert float(number) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[unit] == pytest.approx(
            value, rel=0.5001 * 10 ** (1 - digits)
        )
        assert 1 <= float(number) < (1e4 if not unit else 1000), text
    assert in_units(5.71e6) == "5.7 M"
    assert in_units(-5.71e6) == "-5.7 M"


def test_values_on_held_out_samples_are_said(lines):
    watch = HeldOutPerplexity(SMALL, every=5)
    make(max_iter=10).set_callbacks(watch).fit(SMALL)
    mf = ModelParallelMF(2, max_iter=10, early_stopping=True, random_state=0).fit(SMALL.astype(float))
    assert watch.latest == {"perplexity": watch.history_[-1]["perplexity"]}
    first, *_, last = lines()
    assert f", perplexity {watch.latest['perplexity']:.6g}, " in first
    assert f", validation_rmse {mf.history_[-1]['validation_rmse']:.6g}, " in last


#: A fit of one target that is followed step by step.
MANY_STEPS = {"schedule": "round_robin", "n_parallel": 1, "max_correlation": None, "random_state": 0}


def test_every_certificate_has_a_line(lines):
    X = np.random.default_rng(0).normal(size=(40, 5))
    lasso = PrioritizedLasso(0.1, **MANY_STEPS).fit(X, X[:, 0])
    assert len(lines()) == len(lasso.history_) > 1
    assert f"step 1, objective {lasso.history_[0]['objective']:.6g}, " in lines()[0]


def test_the_progress_bar_shows_what_a_fit_has_reached(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    watch = HeldOutPerplexity(SMALL, every=5)
    lda = make(verbose=1, evaluate_every=5).set_callbacks(watch).fit(SMALL)
    X = np.random.default_rng(0).normal(size=(40, 5))
    lasso = PrioritizedLasso(0.1, verbose=1, **MANY_STEPS).fit(X, X[:, 0])
    shown = capfd.readouterr().out
    reached = f"log likelihood {lda.history_[-1]['log_likelihood']:.6g} · perplexity {watch.latest['perplexity']:.6g}"
    assert f"25 of 25 {reached} · " in shown
    assert f" {len(lasso.history_)} objective {lasso.history_[-1]['objective']:.6g} " in shown
    assert shown.count("samples/s") == 2


@pytest.mark.parametrize(("patience", "n_lines"), [(0.0, 1), (60.0, 0)])
def test_a_fit_that_compiles_for_long_says_so_once(monkeypatch, caplog, capsys, patience, n_lines):
    monkeypatch.setattr("schmp_estimators.core.following.PATIENCE", patience)
    with caplog.at_level(logging.INFO, "schmp_estimators.core.following"):
        compiles = AfterSweeps(lambda lda, context: njit(lambda value: value + 1)(1) < 0)
        make(max_iter=3, verbose=1).set_callbacks(compiles).fit(SMALL)
        njit(lambda value: value + 2)(1)  # which is not of the fit
    found = [one.message for one in caplog.records if one.name == "schmp_estimators.core.following"]
    assert found == ["DistributedLDA: compiling, once on this machine"] * n_lines
