"""Following a fit: callbacks, early stopping, the progress bar, and the plot of what happened."""

import logging
import sys

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from corpora import SMALL, assert_same_bits, planted
from sklearn.exceptions import NotFittedError

from schmp_estimators import ConvergenceDisplay, DistributedLDA, HeldOutPerplexity

matplotlib.use("Agg")


def make(**parameters):
    # a tempered start depends on `max_iter`, and fits that end earlier are compared with shorter ones here
    return DistributedLDA(**{"n_components": 4, "max_iter": 12, "init": "uniform", "random_state": 7} | parameters)


class Recorder:
    """Notes all that it is told."""

    def __init__(self, stop_at=None):
        self.stop_at, self.events, self.kept = stop_at, [], []

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(("begin", context.task_name))

    def on_fit_task_end(self, estimator, context, *, X, fitted_estimator):
        self.events.append(("end", context.task_name))
        self.kept.append((fitted_estimator, X))
        return context.task_name == "sweep" and estimator.n_iter_ == self.stop_at


def test_callbacks_see_a_fit_from_setup_to_teardown():
    recorder = Recorder()
    lda = make(max_iter=3).set_callbacks(recorder).fit(SMALL)
    sweep = [("begin", "sweep"), ("end", "sweep")]
    assert recorder.events == ["setup", ("begin", "fit"), *sweep * 3, ("end", "fit"), "teardown"]
    assert all(X is SMALL for _, X in recorder.kept)
    assert_same_bits(lda, make(max_iter=3).fit(SMALL))


@pytest.mark.parametrize("where", ["here", "cluster"])
def test_callbacks_get_the_model_as_it_is_after_each_sweep(where, client):
    recorder, parameters = Recorder(), {"n_shards": 1 if where == "here" else 3}
    lda = make(max_iter=4, **parameters).set_callbacks(recorder)
    if where == "here":
        lda.fit(SMALL)
    else:
        with client.as_current():
            lda.fit(SMALL)
    for sweep, (model, _) in enumerate(recorder.kept[:4], 1):
        shorter = make(max_iter=sweep).fit(SMALL)
        assert (model.topic_word_counts_ != shorter.topic_word_counts_).nnz == 0
        np.testing.assert_array_equal(model.transform(SMALL), shorter.transform(SMALL))


@pytest.mark.parametrize("n_shards", [1, 3])
def test_a_fit_that_a_callback_ends_is_a_shorter_fit(n_shards, client):
    for place in (None, client):
        lda = make(n_shards=n_shards).set_callbacks(Recorder(stop_at=5))
        if place is None:
            lda.fit(SMALL)
        else:
            with place.as_current():
                lda.fit(SMALL)
        assert lda.n_iter_ == len(lda.history_) == 5
        assert_same_bits(lda, make(max_iter=5).fit(SMALL))


@pytest.mark.parametrize("sampler", ["warp", "fplus"])
def test_tol_ends_a_fit_between_two_evaluations(sampler):
    parameters = {"sampler": sampler, "evaluate_every": 2}
    lda = make(max_iter=300, tol=0.001, **parameters).fit(SMALL)
    assert lda.n_iter_ < 300
    assert lda.n_iter_ % 2 == 0
    values = [record["log_likelihood"] for record in lda.history_ if "log_likelihood" in record]
    changes = np.abs(np.diff(values)) / np.abs(values[:-1])
    assert changes[-1] <= 0.001
    assert (changes[:-1] > 0.001).all()
    assert changes[:-1].min() < 0.004  # not far above: so `tol` was taken as it is
    assert_same_bits(lda, make(max_iter=lda.n_iter_, **parameters).fit(SMALL))


# Held-out perplexity.


def test_held_out_perplexity_is_that_of_the_model_at_that_sweep():
    X, _, _ = planted(n_docs=80)
    watch = HeldOutPerplexity(X[60:], every=4)
    lda = make().set_callbacks(watch).fit(X[:60])
    assert [record["iterations"] for record in watch.history_] == [4, 8, 12]
    for record in watch.history_:
        assert record["perplexity"] == make(max_iter=record["iterations"]).fit(X[:60]).perplexity(X[60:])
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


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"every": 0}, "every=0; it is a number of sweeps, at least 1"),
        ({"patience": 0}, "patience=0; .* at least 1, or None"),
        ({"tol": -0.1}, "tol=-0.1"),
        ({"tol": np.nan}, "tol=nan"),
    ],
)
def test_held_out_perplexity_refuses(parameters, message):
    with pytest.raises(ValueError, match=message):
        HeldOutPerplexity(SMALL, **parameters)


def test_held_out_documents_of_another_width_end_the_fit_with_an_error():
    lda = make().set_callbacks(HeldOutPerplexity(SMALL[:, :4], every=2))
    with pytest.raises(ValueError, match="X has 4 features, but DistributedLDA is expecting 11"):
        lda.fit(SMALL)
    with pytest.raises(NotFittedError):
        lda.transform(SMALL)


# scikit-learn's own callbacks.


@pytest.mark.parametrize("verbose", [True, 1])
def test_verbose_shows_a_progress_bar_and_leaves_no_callback_behind(verbose, capfd):
    lda = make(verbose=verbose).fit(SMALL)
    assert "DistributedLDA" in capfd.readouterr().out
    assert not hasattr(lda, "_skl_callbacks")
    assert_same_bits(lda, make().fit(SMALL))


def test_silence_unless_asked_for(capfd, caplog):
    with caplog.at_level(logging.WARNING):
        make().fit(SMALL).perplexity(SMALL)
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.name.startswith("schmp_estimators")]


def test_verbose_without_rich_says_how_to_get_it(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setattr("schmp_estimators.core.following.find_spec", lambda name: None)
    make(verbose=1).fit(SMALL)
    assert "pip install rich" in caplog.text


# The plot.


@pytest.fixture
def fitted():
    return make(evaluate_every=3).fit(SMALL)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def evaluated(lda, name):
    return [record[name] for record in lda.history_ if "log_likelihood" in record]


@pytest.mark.parametrize(
    ("x", "label"),
    [("iterations", "Sweeps"), ("seconds", "Seconds"), ("samples", "Data samples operated upon")],
)
def test_the_plot_shows_the_history(fitted, x, label):
    display = ConvergenceDisplay.from_estimator(fitted, x=x)
    np.testing.assert_array_equal(display.line_.get_xdata(), evaluated(fitted, x))
    np.testing.assert_array_equal(display.line_.get_ydata(), evaluated(fitted, "log_likelihood"))
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == (label, "Log likelihood")
    assert display.figure_ is display.ax_.figure
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == ["DistributedLDA"]


def test_what_is_plotted_and_where(fitted):
    _, ax = plt.subplots()
    display = ConvergenceDisplay.from_estimator(fitted, y="moved", ax=ax, name="mine", color="red")
    assert display.ax_ is ax
    assert len(display.line_.get_xdata()) == 12  # recorded in every sweep
    assert (display.line_.get_label(), display.line_.get_color()) == ("mine", "red")
    again = display.plot(name="other")
    assert again.ax_ is not ax
    assert again.line_.get_label() == "other"
    ConvergenceDisplay.from_estimator(fitted, ax=ax)
    assert len(ax.lines) == 2


def test_errors_of_the_plot(fitted):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        ConvergenceDisplay.from_estimator(make())
    with pytest.raises(ValueError, match=r"x='time'; it must be one of \['iterations', 'samples', 'seconds'\]"):
        ConvergenceDisplay.from_estimator(fitted, x="time")
    with pytest.raises(ValueError, match=r"no record of history_ has 'loss', only .*'log_likelihood'.* name one of"):
        ConvergenceDisplay.from_estimator(fitted, y="loss")
    with pytest.raises(ValueError, match=r"has 'log_likelihood', only .* or fit with evaluate_every=1"):
        ConvergenceDisplay.from_estimator(make().fit(SMALL))
    assert plt.get_fignums() == []
