"""Metropolis–Hastings as in "light", with proposals of the document only, for comparison."""

from typing import ClassVar

from schmp_estimators.lda.samplers.light import LightLDA


class LightDocumentLDA(LightLDA):
    """The same with proposals of the document only, as many in all.

    Parameters
    ----------
    mh_steps
        As in `LightLDA`.
    """

    kinds: ClassVar[tuple[bool, bool]] = False, False
