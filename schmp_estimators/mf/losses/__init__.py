"""What it costs to predict wrongly: one file for each loss of `ModelParallelMF`.

A loss is an empty named tuple.  One that `ranks` has a method ``pull(taken, drawn)``, which is compiled into kernels:
of the scores of an item that the user has taken and of one that was drawn it returns the loss, and its negative
derivatives by both.  Its `alpha` is what ``alpha="auto"`` is.
"""

from typing import Any

from schmp_estimators.mf.losses.bpr import Bpr
from schmp_estimators.mf.losses.logistic import Logistic
from schmp_estimators.mf.losses.squared import Squared

#: By the names that users know.
LOSSES: dict[str, Any] = {"squared": Squared(), "logistic": Logistic(), "bpr": Bpr()}
