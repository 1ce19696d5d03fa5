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


class TestFPlus(TestWarp):
    @staticmethod
    def make(**parameters):
        return TestWarp.make(sampler="fplus", n_shards=2, **parameters)


class TestFrozen(TestWarp):
    @staticmethod
    def make(**parameters):
        return TestWarp.make(sampler="frozen", n_shards=2, **parameters)


class TestSaber(TestWarp):
    @staticmethod
    def make(**parameters):
        return TestWarp.make(sampler="saber", n_shards=2, **parameters)


class TestDataParallel(TestWarp):
    @staticmethod
    def make(**parameters):
        return TestWarp.make(sampler="data-parallel", n_shards=2, **parameters)


@pytest.mark.slow
class TestOnACluster(TestWarp):
    @pytest.fixture(autouse=True)
    def _cluster(self, client):
        with client.as_current():
            yield
