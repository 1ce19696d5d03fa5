"""DistributedLDA keeps to what users of scikit-learn rely upon beside its checks."""

import pytest
from corpora import assert_same_bits
from estimator_contract import EstimatorContract

from schmp_estimators import DistributedLDA


class TestWarp(EstimatorContract):
    same = staticmethod(assert_same_bits)

    @staticmethod
    def make(**parameters):
        return DistributedLDA(**{"n_components": 3, "max_iter": 4, "random_state": 7} | parameters)


@pytest.mark.slow
class TestOnACluster(TestWarp):
    @pytest.fixture(autouse=True)
    def _cluster(self, client):
        with client.as_current():
            yield
