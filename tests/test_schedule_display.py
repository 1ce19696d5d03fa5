"""The plot of who worked on what when."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

from schmp_estimators import ScheduleDisplay

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def task(worker, key, *spans, thread=1):
    startstops = [{"action": action, "start": start, "stop": stop} for action, start, stop in spans]
    return {"worker": worker, "thread": thread, "key": key, "startstops": startstops}


STREAM = [
    task("b", ("lda-sample-words-0123abcd", 1, 0, 1, 0, 0, 0), ("transfer", 9.5, 10.0), ("compute", 10.0, 12.0)),
    task("a", "('lda-sample-words-0123abcd', 1, 0, 1, 1, 0, 1)", ("compute", 10.0, 11.0)),
    task("a", ["lda-sample-words-0123abcd", 1, 1, 1, 0, 1, 1], ("compute", 13.0, 14.0), thread=2),
    task("a", ("lda-report-0123abcd", 1, 0, 2, 0), ("compute", 12.0, 12.1), ("disk-read", 0.0, 1.0)),
    task("b", "other-key", ("compute", 12.0, 12.2)),
]


def spans(display, name):
    """From when to when, and where, each bar is."""
    found = []
    for drawn in display.bars_[name]:
        for path in drawn.get_paths():
            (left, bottom), (right, top) = path.vertices.min(axis=0), path.vertices.max(axis=0)
            found.append(tuple(np.round([left, right, bottom, top], 6)))
    return sorted(found)


def test_a_bar_for_each_task_in_the_row_of_its_worker():
    display = ScheduleDisplay.from_task_stream(STREAM)
    assert display.workers_ == ["a", "b"]
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == ["worker 1", "worker 0"]
    bars = spans(display, "lda-sample-words")
    assert [bar[:2] for bar in bars] == [(0.5, 1.5), (0.5, 2.5), (3.5, 4.5)]
    (_, _, low, _), (_, _, lowest, _), (_, _, upper, _) = bars
    assert -0.5 < lowest < 0.5 < low < upper < 1.5  # b is below a, whose threads have lanes of their own
    assert [bar[:2] for bar in spans(display, "data come")] == [(0.0, 0.5)]
    assert spans(display, "data come")[0][3] < lowest
    names = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert names == ["lda-sample-words", "other-key", "lda-report", "data come"]
    assert display.figure_ is display.ax_.figure


def test_blocks_have_colours():
    display = ScheduleDisplay.from_task_stream(STREAM, by="block")
    assert {name: len(spans(display, name)) for name in display.bars_} == {
        **{"block 0": 1, "block 1": 2},
        **{"all else": 2, "data come": 1},
    }


def test_many_blocks_have_a_legend_of_some():
    stream = [task("a", ("mf-sgd-0123abcd", 1, 0, 1, 0, 0, n), ("compute", n, n + 1.0)) for n in range(40)]
    display = ScheduleDisplay.from_task_stream(stream, by="block")
    display.figure_.canvas.draw()  # a legend of all would leave no room
    assert len(display.bars_) == 40
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == [f"block {n}" for n in range(0, 40, 5)]


def test_keys_of_others_may_be_any_text():
    display = ScheduleDisplay.from_task_stream([task("a", key, ("compute", 0.0, 1.0)) for key in ("(x", "(a, b)")])
    assert set(display.bars_) == {"(x", "(a, b)"}


def test_some_sweeps_alone():
    _, ax = plt.subplots()
    display = ScheduleDisplay.from_task_stream(STREAM, sweeps=(1, 2), ax=ax)
    assert display.ax_ is ax
    assert [bar[:2] for bar in spans(display, "lda-sample-words")] == [(0.0, 1.0)]
    assert display.plot().ax_ is not ax


def test_errors_of_the_plot():
    with pytest.raises(ValueError, match="by='worker'; it must be 'stage' or 'block'"):
        ScheduleDisplay.from_task_stream(STREAM, by="worker")
    with pytest.raises(ValueError, match="the task stream has no tasks; it has only what ends within"):
        ScheduleDisplay.from_task_stream([])
    with pytest.raises(ValueError, match="no tasks of the sweeps from 5 to before 7"):
        ScheduleDisplay.from_task_stream(STREAM, sweeps=(5, 7))
    with pytest.raises(ValueError, match=r"holds \{'iterations': 1\}, which is no task; give what Client.get_task_str"):
        ScheduleDisplay.from_task_stream([{"iterations": 1}])
    assert plt.get_fignums() == []
