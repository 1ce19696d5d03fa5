"""Every value of a parameter acts in a fit, or is refused by name."""

import inspect

import numpy as np
import pytest
from inert import inert, refused
from mf_cases import bits, planted

from schmp_estimators import ModelParallelMF

TRUTH, SEEN = planted()
PAIRS, RATINGS = np.argwhere(SEEN), np.clip(TRUTH, 2.5, 3.5)[SEEN]
#: What never changes a result.
SILENT = {"n_jobs": [2], "verbose": [1], "checkpoint": ["state"], "checkpoint_every": [2]}
#: What every fit accepts, whether it acts or not.
ACCEPTED = {
    "random_state": [1], "max_iter": [3, 30], "tol": [0.0, 0.5], "n_shards": [1, 3],
}  # fmt: skip
#: Values of all other parameters that are not the defaults.
CHANGES = {
    "n_components": [2], "solver": ["sgd", "ccd"], "loss": ["logistic", "bpr"], "schedule": ["bsp"],
    "alpha": [0.0, 0.3], "penalty": ["per_row", 0.5], "fit_bias": [False], "positive": [True],
    "unobserved_weight": [0.3], "confidence": [np.log1p], "clip": [True], "learning_rate": [0.05],
    "evaluate_every": [1, 3], "early_stopping": [True], "validation_fraction": [0.3],
    "n_iter_no_change": [2], "n_users": [60], "n_items": [70],
}  # fmt: skip
#: Settings, and what a value would only repeat in them: the choice of "auto".
SETTINGS = [
    ({}, {"solver": ["ccd"]}),
    ({"solver": "sgd", "tol": 0.0}, {}),
    ({"solver": "ccd"}, {}),
    ({"schedule": "bsp"}, {"solver": ["ccd"]}),
    ({"unobserved_weight": 0.1}, {"solver": ["sgd"]}),
    ({"unobserved_weight": 0.1, "confidence": np.log1p, "alpha": 0.0}, {"solver": ["sgd"]}),
    *[({"loss": loss, **more}, {"solver": ["ccd"]}) for loss in ("logistic", "bpr")
      for more in ({}, {"tol": 0.0, "schedule": "bsp"})],
    ({"early_stopping": True}, {"solver": ["ccd"]}),
    ({"early_stopping": True, "solver": "ccd", "alpha": 0.0}, {}),
    ({"fit_bias": False, "positive": True}, {"solver": ["ccd"]}),
    ({"alpha": 0.0, "evaluate_every": 2, "tol": 0.3}, {"solver": ["ccd"]}),
]  # fmt: skip


def make(**given):
    return ModelParallelMF(
        **{"n_components": 4, "max_iter": 9, "tol": 0.1, "random_state": 0, "n_shards": 2, **given}
    )


def learned(fitted):
    """Return the bits of a fit, of its records, and of what it predicts for new ratings."""
    records = [{**record, "seconds": 0} for record in fitted.history_]
    everything = np.argwhere(np.ones_like(SEEN))
    return bits(fitted), repr(records), fitted.predict(everything).tobytes()


def of_pairs(estimator):
    return learned(estimator.fit(PAIRS, RATINGS))


def of_a_matrix(estimator):
    return learned(estimator.fit(np.where(SEEN, np.clip(TRUTH, 2.5, 3.5), np.nan)))


@pytest.mark.covering
@pytest.mark.parametrize("fit", [of_pairs, of_a_matrix])
@pytest.mark.parametrize(("given", "instead"), SETTINGS, ids=str)
def test_a_value_acts_or_is_refused_by_name(fit, given, instead):
    assert inert(make, fit, given, CHANGES | instead) == []
    assert refused(make, fit, given, ACCEPTED) == []


@pytest.mark.parametrize(("given", "instead"), SETTINGS, ids=str)
def test_what_is_silent_never_changes_a_result(given, instead, tmp_path):
    silent = SILENT | {"checkpoint": [str(tmp_path / "state")]}
    found = inert(make, of_pairs, given, silent)
    assert found == [f"{name}={value!r}" for name, (value,) in silent.items()]


def test_each_parameter_is_in_one_list():
    names = [*SILENT, *ACCEPTED, *CHANGES]
    defaults = inspect.signature(ModelParallelMF).parameters
    assert sorted(names) == sorted(defaults)
    for name, values in CHANGES.items():
        assert defaults[name].default not in values
