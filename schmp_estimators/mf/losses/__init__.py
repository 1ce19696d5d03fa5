"""Losses that rank items: one file for each.

A loss is an empty named tuple with a method ``pull(taken, drawn)``, which is compiled into kernels.  It gets the scores
of an item that the user has taken and of an item that was drawn, and returns the loss and its negative derivatives by
both.
"""

from typing import Any

from schmp_estimators.mf.losses.bpr import Bpr
from schmp_estimators.mf.losses.logistic import Logistic

#: By the names that users know.
RANKING: dict[str, Any] = {"logistic": Logistic(), "bpr": Bpr()}
