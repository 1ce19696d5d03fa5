"""Samplers of topic models: the interface for your own, and what those of the package are made of.

:doc:`../user_guide/samplers` shows how to write one.
"""

from schmp_estimators.core.jit import copy_to, inlined, kernel, maker, part
from schmp_estimators.core.lanes import prefetch
from schmp_estimators.core.rng import GAMMA, mix, stream_key, uniform40, unit
from schmp_estimators.core.stages import At, Stage
from schmp_estimators.core.values import freeze, offsets_of, own, part_of_each
from schmp_estimators.lda.blocks import TokenShard, TopicRows, WordBlock
from schmp_estimators.lda.data.counts import changed
from schmp_estimators.lda.data.shards import Layout, count_local_words
from schmp_estimators.lda.data.topic_rows import (
    WordPart,
    combine_parts,
    make_parts,
    rows_of_tokens,
    stack_rows,
)
from schmp_estimators.lda.kernels.draw import (
    build_tree,
    find_in_tree,
    first_above,
    put_in_tree,
    tree_levels,
    uniform24,
)
from schmp_estimators.lda.kernels.lists import (
    TopicLists,
    find_in_list,
    list_words,
    move_in_list,
    place_of,
    sum_list,
)
from schmp_estimators.lda.kernels.priors import (
    beta_of,
    build_alias,
    draw_alias,
    draw_of_prior,
    find_seed,
    prior_mass,
    topic_priors,
)
from schmp_estimators.lda.kernels.rows import (
    add_row,
    add_to,
    cell_of,
    count_of,
    make_rows,
    take_one,
)
from schmp_estimators.lda.programs.documents import (
    Document,
    DocumentSampler,
    document_loop,
    find_in_document,
    is_rounding,
    sum_others,
)
from schmp_estimators.lda.programs.sequential import Cell, Step, inverse_totals, nothing
from schmp_estimators.lda.programs.topics import (
    FrozenCountsSampler,
    Measured,
    SweepModel,
    TopicSampler,
    topic_bytes,
)
from schmp_estimators.lda.programs.words import Row, WordSampler, WordState, word_loop

__all__ = [
    "GAMMA",
    "At",
    "Cell",
    "Document",
    "DocumentSampler",
    "FrozenCountsSampler",
    "Layout",
    "Measured",
    "Row",
    "Stage",
    "Step",
    "SweepModel",
    "TokenShard",
    "TopicLists",
    "TopicRows",
    "TopicSampler",
    "WordBlock",
    "WordPart",
    "WordSampler",
    "WordState",
    "add_row",
    "add_to",
    "beta_of",
    "build_alias",
    "build_tree",
    "cell_of",
    "changed",
    "combine_parts",
    "copy_to",
    "count_local_words",
    "count_of",
    "document_loop",
    "draw_alias",
    "draw_of_prior",
    "find_in_document",
    "find_in_list",
    "find_in_tree",
    "find_seed",
    "first_above",
    "freeze",
    "inlined",
    "inverse_totals",
    "is_rounding",
    "kernel",
    "list_words",
    "make_parts",
    "make_rows",
    "maker",
    "mix",
    "move_in_list",
    "nothing",
    "offsets_of",
    "own",
    "part",
    "part_of_each",
    "place_of",
    "prefetch",
    "prior_mass",
    "put_in_tree",
    "rows_of_tokens",
    "stack_rows",
    "stream_key",
    "sum_list",
    "sum_others",
    "take_one",
    "topic_bytes",
    "topic_priors",
    "tree_levels",
    "uniform24",
    "uniform40",
    "unit",
    "word_loop",
]


def __dir__() -> list[str]:
    return __all__
