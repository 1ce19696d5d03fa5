"""Every parameter of a topic model acts, or is refused by name."""

from functools import partial

import numpy as np
import pytest
from covering import slow_but
from inert import inert

from schmp_estimators import DistributedLDA
from schmp_estimators.lda.samplers import SAMPLERS

X = np.random.default_rng(0).poisson(1.0, (30, 12))
#: Long documents, for proposals of "hybrid".
LONG = X[:3] * 50
VALUES = {
    "n_components": [4],
    "doc_topic_prior": [0.9, [0.5, 0.2, 0.1], "learn"],
    "topic_word_prior": [0.9, "learn"],
    "seed_words": [{0: [1], 2: [0, 3]}, np.eye(3, 12), {1: {4: 9.0}}],
    "seed_weight": [0.3, 0.0],
    "feature_names": [[f"w{j}" for j in range(12)]],
    "mh_steps": [1, 3, 16],
    "evaluate_every": [1, 4, 5],
    "transform_tol": [0.3],
}
MANY = {"n_components": 601}
SETTINGS = {
    **{sampler: (X, {"sampler": sampler}) for sampler in SAMPLERS},
    "auto": (X, {}),
    "hybrid of many topics": (X, {"sampler": "hybrid", **MANY}),
    "hybrid of many topics and tokens": (LONG, {"sampler": "hybrid", **MANY}),
    "tempered": (X, {"init": "tempered"}),
    "documents": (X, {"init": "documents"}),
    "seeds": (X, {"seed_words": {0: [1], 2: [0, 3]}}),
    "seeds of an array": (X, {"seed_words": np.eye(3, 12)}),
    "seeds with weights": (X, {"seed_words": {0: {1: 2.0}}, "seed_weight": 0.5}),
    "learned priors": (
        X,
        {"doc_topic_prior": "learn", "topic_word_prior": "learn", "max_iter": 12},
    ),
    "slices": (X, {"spill": "auto"}),
}


def learned(data, lda):
    """What a fit has learned, to the bit."""
    lda.fit(data)
    records = [{**one, "seconds": 0.0} for one in lda.history_]
    arrays = lda.topic_word_counts_.toarray(), lda.transform(data), np.array(lda.doc_topic_prior_)
    seeds = None if lda.seed_counts_ is None else lda.seed_counts_.toarray().tobytes()
    names = None if lda.feature_names_ is None else lda.feature_names_.tolist()
    return repr(records), [one.tobytes() for one in arrays], lda.topic_word_prior_, seeds, names


def make(**given):
    return DistributedLDA(**{"n_components": 3, "max_iter": 4, "random_state": 7, **given})


def changes(given):
    """The values that fit the number of topics."""
    of_three = "seed_words", "doc_topic_prior"
    several = given.get("n_components", 3) != 3
    return {name: values for name, values in VALUES.items() if not (several and name in of_three)}


@pytest.mark.parametrize("setting", slow_but({"auto", "seeds", "seeds of an array"}, SETTINGS))
def test_a_parameter_acts_or_is_refused_by_name(setting):
    data, given = SETTINGS[setting]
    assert not inert(make, partial(learned, data), given, changes(given))
