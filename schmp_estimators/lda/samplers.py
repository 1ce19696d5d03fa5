"""The samplers of `DistributedLDA` by name, and which one "auto" is."""

from __future__ import annotations

from typing import Any

from schmp_estimators.lda.programs.aliased import AliasLDA
from schmp_estimators.lda.programs.data_parallel import DataParallelLDA
from schmp_estimators.lda.programs.fplus import FPlusLDA
from schmp_estimators.lda.programs.frozen import FrozenLDA
from schmp_estimators.lda.programs.hybrid import HybridLDA
from schmp_estimators.lda.programs.light import LightLDA
from schmp_estimators.lda.programs.sparse import SparseLDA
from schmp_estimators.lda.programs.topics import TopicProgram
from schmp_estimators.lda.programs.warp import WarpLDA

#: Every sampler under the name that users give.
SAMPLERS: dict[str, type[TopicProgram[Any, Any]]] = {
    program.sampler: program
    for program in (WarpLDA, FrozenLDA, FPlusLDA, SparseLDA, LightLDA, AliasLDA, HybridLDA, DataParallelLDA)
}


def choose_sampler(name: str) -> type[TopicProgram[Any, Any]]:
    """Return the program of a sampler; "auto" depends on data and parameters only, never on the place."""
    return SAMPLERS["warp" if name == "auto" else name]
