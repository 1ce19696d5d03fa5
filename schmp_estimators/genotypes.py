"""Genotypes in two bits each, as PLINK stores them: an X for linear models.

:doc:`../user_guide/genotypes` shows how to use them.
"""

from schmp_estimators.linear.genotypes import Genotypes, join, pack, read_plink

__all__ = ["Genotypes", "join", "pack", "read_plink"]


def __dir__() -> list[str]:
    return __all__
