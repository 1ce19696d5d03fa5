"""Metropolis–Hastings as in "light", with proposals of the word only, for comparison."""

from typing import ClassVar

from schmp_estimators.lda.samplers.light import LightLDA


class LightWordLDA(LightLDA):
    """The same with proposals of the word only, as many in all.

    Parameters
    ----------
    mh_steps
        As in `LightLDA`.
    """

    kinds: ClassVar[tuple[bool, bool]] = True, True
