"""Estimators and scikit-learn: all checks of its own, none excused, and what else its users rely upon."""

import pytest
from corpora import assert_same_bits
from estimator_contract import EstimatorContract
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from schmp_estimators import DistributedLDA

SETTINGS = [
    DistributedLDA(max_iter=5),
    DistributedLDA(3, sampler="fplus", max_iter=3, n_shards=2),
    DistributedLDA(max_iter=3, n_shards=3, n_jobs=2, mh_steps=1, evaluate_every=1, tol=1e-3),
]


# The array API is checked only where SciPy was imported with it switched on: that is a setting of the machine.
@pytest.mark.filterwarnings("ignore:Skipping check check_array_api_input:sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(SETTINGS)
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
def test_scikit_learn_with_a_cluster_at_hand(client):
    with client.as_current():
        results = check_estimator(DistributedLDA(max_iter=2, n_shards=2), on_skip=None, on_fail=None)
    assert [(result["check_name"], result["exception"]) for result in results if result["status"] == "failed"] == []


class TestWarp(EstimatorContract):
    same = staticmethod(assert_same_bits)

    @staticmethod
    def make(**parameters):
        return DistributedLDA(**{"n_components": 3, "max_iter": 4, "random_state": 7} | parameters)


class TestFPlus(TestWarp):
    @staticmethod
    def make(**parameters):
        return TestWarp.make(sampler="fplus", n_shards=2, **parameters)


class TestOnACluster(TestWarp):
    @pytest.fixture(autouse=True)
    def _cluster(self, client):
        with client.as_current():
            yield
