"""The plot of who worked on what when."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from corpora import SMALL

from schmp_estimators import (
    DistributedLDA,
    ModelParallelMF,
    PrioritizedLasso,
    ScheduleDisplay,
    schmp,
)
from schmp_estimators.core.dashboard.fits import SPANS
from schmp_estimators.monitor.schedule_display import Span

MADE_UP = [
    Span("b", 1, "wait", None, None, 9.5, 10.0),
    Span("b", 1, "lda-sample-words", 0, 0, 10.0, 12.0),
    Span("a", 1, "lda-sample-words", 0, 1, 10.0, 11.0),
    Span("a", 2, "lda-sample-words", 1, 1, 13.0, 14.0),
    Span("a", 1, "lda-end-sweep", 0, None, 12.0, 12.1),
]


def bars(display, name):
    """From when to when, and where, each bar is."""
    found = []
    for drawn in display.bars_[name]:
        for path in drawn.get_paths():
            (left, bottom), (right, top) = path.vertices.min(axis=0), path.vertices.max(axis=0)
            found.append(tuple(np.round([left, right, bottom, top], 6)))
    return sorted(found)


def test_a_bar_for_each_span_in_the_row_of_its_worker():
    display = ScheduleDisplay(MADE_UP).plot()
    assert display.workers_ == ["a", "b"]
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == ["worker 1", "worker 0"]
    drawn = bars(display, "lda-sample-words")
    assert [bar[:2] for bar in drawn] == [(0.5, 1.5), (0.5, 2.5), (3.5, 4.5)]
    (_, _, low, _), (_, _, lowest, _), (_, _, upper, _) = drawn
    assert (
        -0.5 < lowest < 0.5 < low < upper < 1.5
    )  # b is below a, whose threads have lanes of their own
    assert [bar[:2] for bar in bars(display, "wait")] == [(0.0, 0.5)]
    assert bars(display, "wait")[0][3] < lowest
    names = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert names == ["lda-sample-words", "lda-end-sweep", "wait"]
    assert display.figure_ is display.ax_.figure


@pytest.fixture(scope="module")
def fitted(client):
    """A cluster on which a fit of LDA was the last but one, and one of MF the last one."""
    with client.as_current():
        DistributedLDA(3, max_iter=2, n_shards=2, random_state=0).fit(SMALL)
        ModelParallelMF(2, max_iter=4, n_shards=2, random_state=0).fit(SMALL.astype(float))
    return client


def last_told(client):
    """What ranks of the last run have told: worker, name, sweep, block, start, stop."""
    messages = [message for _, message in client.get_events(SPANS)]
    last = [message for message in messages if message["run"] == messages[-1]["run"]]
    return [
        (message["worker"], *span[:3], *span[4:]) for message in last for span in message["spans"]
    ]


@pytest.mark.parametrize("by", ["stage", "block"])
@pytest.mark.parametrize("sweeps", [None, (1, 3)])
def test_what_ranks_of_the_last_fit_have_told_is_drawn(fitted, by, sweeps):
    _, ax = plt.subplots()
    display, expected = ScheduleDisplay.from_client(fitted, by=by, sweeps=sweeps, ax=ax), {}
    assert display.ax_ is ax
    assert display.plot().ax_ is not ax
    told = last_told(fitted)
    begin, end = 0.0, np.inf
    if sweeps:
        within = [one for one in told if one[2] in range(*sweeps)]
        begin, end = min(one[4] for one in within), max(one[5] for one in within)
        told = within + [one for one in told if one[1] == "wait" and begin <= one[4] < end]
    zero = min(start for *_, start, _ in told)
    for _, name, _, block, start, stop in told:
        called = (
            name
            if by == "stage" or name == "wait"
            else "all else"
            if block < 0
            else f"block {block}"
        )
        expected.setdefault(called, []).append((start - zero, stop - zero))
    found = {name: [bar[:2] for bar in bars(display, name)] for name in display.bars_}
    assert found.keys() == expected.keys()
    for name, drawn in found.items():
        np.testing.assert_allclose(drawn, sorted(expected[name]), atol=2e-6)
    n_sweeps = 2 if sweeps else 4
    counts = (
        {"mf-sgd-update": 4} if by == "stage" else {"block 0": 2, "block 1": 2}
    )  # each shard meets each block
    assert {name: len(found[name]) for name in counts} == {
        name: n_sweeps * count for name, count in counts.items()
    }
    assert {one.sweep for one in display.spans} - {None} == set(
        range(4) if sweeps is None else range(*sweeps)
    )


def test_errors_of_the_plot(fitted):
    no_sweeps = r"sweeps=.*; it must be a first sweep and one after the last, or None"
    for client, parameters, message in (
        (fitted, {"by": "worker"}, "by='worker'; it must be 'stage' or 'block'"),
        (
            SimpleNamespace(get_events=lambda topic: ()),
            {},
            "remembers nothing: fit on the cluster of this client",
        ),
        (
            fitted,
            {"sweeps": (5, 7)},
            "remembers nothing of the sweeps from 5 to before 7: take others",
        ),
        *((fitted, {"sweeps": sweeps}, no_sweeps) for sweeps in (3, (1, 2, 3), (3, 1))),
    ):
        with pytest.raises(ValueError, match=message):
            ScheduleDisplay.from_client(client, **parameters)
    assert plt.get_fignums() == []


@pytest.mark.parametrize("n_targets", [1, 2])
def test_when_parameters_last_moved_is_what_a_fit_has_recorded(n_targets):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 20)) + rng.normal(size=(60, 1))
    y = np.column_stack([X[:, 0], X[:, 1] - X[:, 2]])[:, :n_targets].squeeze()
    schedule = schmp.Priority(4, moved_above=1e-3)
    lasso = PrioritizedLasso(0.01, schedule=schedule, random_state=0, tol=1e-3).fit(X, y)
    display = ScheduleDisplay.from_estimator(lasso)
    moves = lasso.moves_ if n_targets > 1 else [lasso.moves_]
    last = np.concatenate([one.last_moved for one in moves])
    (bars,), (line,) = display.bars_["last move"], display.bars_["converged"]
    for bar in bars:
        centre = bar.get_x() + bar.get_width() / 2
        assert bar.get_height() == ((centre - 1 < last) & (last <= centre)).sum() > 0
    assert sum(bar.get_height() for bar in bars) == (last > 0).sum()
    assert line.get_ydata()[-1] == 100.0 and display.figure_ is display.ax_.figure


def test_an_estimator_without_a_record_of_moves_is_refused():
    for lasso in (PrioritizedLasso(), PrioritizedLasso().fit(np.eye(4), np.arange(4.0))):
        with pytest.raises(
            ValueError, match="PrioritizedLasso has no attribute moves_: fit it with"
        ):
            ScheduleDisplay.from_estimator(lasso)
