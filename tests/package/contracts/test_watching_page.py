"""The callback on the page "Watching a fit" does what the page says."""

import doctest
from pathlib import Path

from schmp_estimators import PrioritizedLasso

PAGE = Path(__file__).parents[3] / "docs" / "user_guide" / "watching.rst"


class Recorder:
    """Notes what a tracker is told."""

    def __init__(self):
        self.told = []

    def __getattr__(self, name):
        return lambda *args, **kwargs: self.told.append((name, args, kwargs))


def test_the_page_runs():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert not failed
    assert tried > 5


def test_the_recipe_tells_a_tracker_of_any_estimator():
    names = {}
    [example] = [one for one in doctest.DocTestParser().get_examples(PAGE.read_text()) if "class Tracked" in one.source]
    exec(example.source, names)
    recorder, X = Recorder(), [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.5]]
    lasso = PrioritizedLasso(0.01).set_callbacks(names["Tracked"](recorder)).fit(X, [1.0, 2.0, 3.0, 2.0])
    (start, *_), (params, *_), *metrics, (end, *_) = recorder.told
    assert (start, params, end) == ("start_run", "log_params", "end_run")
    assert [(name, args, kwargs["step"]) for name, args, kwargs in metrics] == [
        ("log_metrics", ({key: float(value) for key, value in record.items()},), step)
        for step, record in enumerate(lasso.history_, 1)
    ]
