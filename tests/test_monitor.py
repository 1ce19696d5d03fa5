"""Following a fit: callbacks, early stopping, log and progress bar, and the plot of it."""

import logging
import re
import sys
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pytest
from callbacks import AfterSweeps, Recorder
from clusters import at
from corpora import SMALL, assert_same_bits, planted
from numba import njit
from sklearn.exceptions import NotFittedError

from schmp_estimators import (
    ConvergenceDisplay,
    DistributedLDA,
    HeldOutPerplexity,
    PrioritizedLasso,
    schmp,
)
from schmp_estimators.core.progress import in_units

#: a tempered start depends on `max_iter`, and fits that end earlier are compared with shorter ones
#: here
make = partial(DistributedLDA, n_components=4, max_iter=12, init="uniform", random_state=7)


class Sweeps(Recorder):
    """Ends the fit after sweep `stop_at`."""

    def on_fit_task_end(self, estimator, context, *, X, fitted_estimator):
        super().on_fit_task_end(estimator, context)
        self.kept.append((fitted_estimator, X))
        return context.task_name == "sweep" and estimator.n_iter_ == self.stop_at


def test_callbacks_see_a_fit_from_setup_to_teardown():
    recorder = Sweeps()
    lda = make(max_iter=3).set_callbacks(recorder).fit(SMALL)
    assert recorder.events == [
        "setup",
        "begin fit",
        *["begin sweep", "end sweep"] * 3,
        "end fit",
        "teardown",
    ]
    assert all(X is SMALL for _, X in recorder.kept)
    assert_same_bits(lda, make(max_iter=3).fit(SMALL))


@pytest.mark.parametrize("n_shards", [1, 3])
def test_callbacks_get_the_model_as_it_is_after_each_sweep(n_shards, place):
    recorder = Sweeps()
    with at(place):
        make(max_iter=4, n_shards=n_shards).set_callbacks(recorder).fit(SMALL)
    for sweep, (model, _) in enumerate(recorder.kept[:4], 1):
        shorter = make(max_iter=sweep).fit(SMALL)
        assert (model.topic_word_counts_ != shorter.topic_word_counts_).nnz == 0
        np.testing.assert_array_equal(model.transform(SMALL), shorter.transform(SMALL))


@pytest.mark.parametrize("n_shards", [1, 3])
def test_a_fit_that_a_callback_ends_is_a_shorter_fit(n_shards, place):
    with at(place):
        lda = make(n_shards=n_shards).set_callbacks(Sweeps(stop_at=5)).fit(SMALL)
    assert lda.n_iter_ == len(lda.history_) == 5
    assert_same_bits(lda, make(max_iter=5).fit(SMALL))


# Held-out perplexity.


def test_held_out_perplexity_is_that_of_the_model_at_that_sweep():
    X, _, _ = planted(n_docs=80)
    watch = HeldOutPerplexity(X[60:], every=4)
    lda = make().set_callbacks(watch).fit(X[:60])
    assert [record["iterations"] for record in watch.history_] == [4, 8, 12]
    for record in watch.history_:
        assert record["perplexity"] == make(max_iter=record["iterations"]).fit(X[:60]).perplexity(
            X[60:]
        )
    assert_same_bits(lda, make().fit(X[:60]))


def test_held_out_perplexity_ends_a_fit_that_no_longer_improves():
    X, _, _ = planted(n_docs=80)
    watch = HeldOutPerplexity(X[60:], every=2, patience=3)
    lda = make(max_iter=500).set_callbacks(watch).fit(X[:60])
    values = [record["perplexity"] for record in watch.history_]
    assert lda.n_iter_ == 2 * len(values) < 500
    assert int(np.argmin(values)) == len(values) - 4
    impatient = HeldOutPerplexity(X[60:], every=1, patience=2, tol=0.9)
    assert make().set_callbacks(impatient).fit(X[:60]).n_iter_ == 3


def test_held_out_perplexity_refuses_what_it_cannot_use():
    for parameters, message in (
        ({"every": 0}, "every=0; it is a number of sweeps, at least 1"),
        ({"patience": 0}, "patience=0; .* at least 1, or None"),
        ({"tol": -0.1}, "tol=-0.1"),
        ({"tol": np.nan}, "tol=nan"),
        ({"tol": 0.1}, "tol=0.1 is for patience"),
    ):
        with pytest.raises(ValueError, match=message):
            HeldOutPerplexity(SMALL, **parameters)
    lda = make().set_callbacks(HeldOutPerplexity(SMALL[:, :4], every=2))
    with pytest.raises(ValueError, match="X has 4 features, but DistributedLDA is expecting 11"):
        lda.fit(SMALL)
    with pytest.raises(NotFittedError):
        lda.transform(SMALL)


# scikit-learn's own callbacks.


def test_silence_unless_asked_for(capfd, caplog):
    with caplog.at_level(logging.WARNING):
        make().fit(SMALL).perplexity(SMALL)
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.name.startswith("schmp_estimators")]


def test_verbose_without_rich_says_how_to_get_it(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setattr("schmp_estimators.core.estimators.find_spec", lambda name: None)
    make(verbose=1).fit(SMALL)
    assert "pip install rich" in caplog.text


# The plot.


@pytest.fixture
def fitted():
    return make(evaluate_every=3).fit(SMALL)


def evaluated(lda, name):
    return [record[name] for record in lda.history_ if "log_likelihood" in record]


@pytest.mark.parametrize(
    ("x", "label"),
    [
        ("iterations", "Iterations"),
        ("seconds", "Seconds"),
        ("samples", "Data samples operated upon"),
    ],
)
def test_the_plot_shows_the_history(fitted, x, label):
    display = ConvergenceDisplay.from_estimator(fitted, x=x)
    np.testing.assert_array_equal(display.line_.get_xdata(), evaluated(fitted, x))
    np.testing.assert_array_equal(display.line_.get_ydata(), evaluated(fitted, "log_likelihood"))
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == (label, "Log likelihood")
    assert display.figure_ is display.ax_.figure
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == ["DistributedLDA"]


def test_errors_of_the_plot(fitted):
    for lda, parameters, message in (
        (make(), {}, "not fitted yet"),
        (
            fitted,
            {"x": "time"},
            r"x='time'; it must be one of \['iterations', 'samples', 'seconds'\]",
        ),
        (
            fitted,
            {"y": "loss"},
            r"no record of history_ has 'loss', only .*'log_likelihood'.* name one of",
        ),
        (make().fit(SMALL), {}, r"has 'log_likelihood', only .* or fit with evaluate_every=1"),
    ):
        with pytest.raises(ValueError, match=message):
            ConvergenceDisplay.from_estimator(lda, **parameters)
    assert plt.get_fignums() == []


NUMBER = r"\d[\d.]*( [kMG])?"


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "schmp_estimators.core.progress")
    return lambda: [
        one.message for one in caplog.records if one.name == "schmp_estimators.core.progress"
    ]


def test_the_log_has_a_line_after_every_ten_sweeps_and_at_the_end(lines):
    lda = make(max_iter=25, evaluate_every=4).fit(SMALL)
    values = {
        one["iterations"]: one["log_likelihood"] for one in lda.history_ if "log_likelihood" in one
    }
    expected = zip((10, 20, 25), (8, 20, 24), strict=True)
    for line, (sweep, evaluated) in zip(lines(), expected, strict=True):
        start = f"DistributedLDA: sweep {sweep} of 25, log_likelihood {values[evaluated]:.6g}, "
        assert re.fullmatch(re.escape(start) + NUMBER + " samples/s", line)


@pytest.mark.parametrize("digits", [2, 3, 4])
def test_numbers_in_units_are_rounded_and_have_no_exponent(digits):
    values = np.concatenate(
        [np.geomspace(1, 9e11, 997), 10.0 ** np.arange(12) * 0.99999, [9999, 999_500, 9.96e8]]
    )
    for value in values:
        text = in_units(value, digits)
        assert re.fullmatch(NUMBER, text), text
        number, _, unit = text.partition(" ")
        found = float(number) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[unit]
        assert found == pytest.approx(value, rel=0.5001 * 10 ** (1 - digits))
        assert 1 <= float(number) < (1e4 if not unit else 1000), text
    assert in_units(5.71e6) == "5.7 M"
    assert in_units(-5.71e6) == "-5.7 M"


#: A fit of one target that is followed step by step.
MANY_STEPS = {
    "schedule": schmp.RoundRobin(n_parallel=1),
}


def test_the_progress_bar_shows_what_a_fit_has_reached(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    watch = HeldOutPerplexity(SMALL, every=5)
    lda = make(max_iter=25, verbose=1, evaluate_every=5).set_callbacks(watch).fit(SMALL)
    X = np.random.default_rng(0).normal(size=(40, 5))
    lasso = PrioritizedLasso(0.1, verbose=1, **MANY_STEPS).fit(X, X[:, 0])
    shown = capfd.readouterr().out
    reached = (
        f"log likelihood {lda.history_[-1]['log_likelihood']:.5g} · "
        f"perplexity {watch.latest['perplexity']:.5g}"
    )
    assert f"25 of 25 {reached} · " in shown
    assert f" {len(lasso.history_)} objective {lasso.history_[-1]['objective']:.5g} " in shown
    assert shown.count("/s ") == shown.count(" left") == 2
    assert not hasattr(lasso, "_skl_callbacks")
    assert_same_bits(lda, make(max_iter=25, evaluate_every=5).fit(SMALL))


@pytest.mark.parametrize(("patience", "n_lines"), [(0.0, 1), (60.0, 0)])
def test_a_fit_that_compiles_for_long_says_so_once(monkeypatch, caplog, capsys, patience, n_lines):
    monkeypatch.setattr("schmp_estimators.core.progress.PATIENCE", patience)
    with caplog.at_level(logging.INFO, "schmp_estimators.core.progress"):
        compiles = AfterSweeps(lambda lda, context: njit(lambda value: value + 1)(1) < 0)
        make(max_iter=3, verbose=1).set_callbacks(compiles).fit(SMALL)
        njit(lambda value: value + 2)(1)  # which is not of the fit
    found = [one.message for one in caplog.records if "compiling" in one.message]
    assert found == ["DistributedLDA: compiling, once on this machine"] * n_lines
