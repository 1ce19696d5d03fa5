"""Losses and penalties of `SparseGLM`, and the interfaces for your own.

:doc:`../user_guide/penalties` shows how.
"""

from schmp_estimators.linear.losses.base import Derivatives, Level, Loss
from schmp_estimators.linear.losses.huber import Huber
from schmp_estimators.linear.losses.logistic import Logistic
from schmp_estimators.linear.losses.poisson import Poisson
from schmp_estimators.linear.losses.squared import Squared
from schmp_estimators.linear.penalties.base import Penalty, at, weigh
from schmp_estimators.linear.penalties.elastic_net import L1, ElasticNet
from schmp_estimators.linear.penalties.mcp import MCP

__all__ = [
    "L1",
    "MCP",
    "Derivatives",
    "ElasticNet",
    "Huber",
    "Level",
    "Logistic",
    "Loss",
    "Penalty",
    "Poisson",
    "Squared",
    "at",
    "weigh",
]


def __dir__() -> list[str]:
    return __all__
