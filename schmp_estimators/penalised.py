"""Losses and penalties of `SparseGLM`, and interfaces for your own losses, penalties and X.

:doc:`../user_guide/penalties` and :doc:`../user_guide/plugs` show their use.
"""

from schmp_estimators.linear.losses.base import Derivatives, Level, Loss
from schmp_estimators.linear.losses.huber import Huber
from schmp_estimators.linear.losses.logistic import Logistic
from schmp_estimators.linear.losses.poisson import Poisson
from schmp_estimators.linear.losses.squared import Squared
from schmp_estimators.linear.penalties.base import Penalty, at, weigh
from schmp_estimators.linear.penalties.elastic_net import L1, ElasticNet
from schmp_estimators.linear.penalties.mcp import MCP
from schmp_estimators.linear.programs.matrix import Storage

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
    "Storage",
    "at",
    "weigh",
]


def __dir__() -> list[str]:
    return __all__
