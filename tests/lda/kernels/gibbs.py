"""Collapsed Gibbs sampling in O(K) for a token (Griffiths and Steyvers, PNAS 2004)."""

import numpy as np

from schmp_estimators.core.jit import inlined, kernel, maker
from schmp_estimators.core.rng import mix, unit
from schmp_estimators.lda.kernels.draw import first_above
from schmp_estimators.lda.kernels.priors import beta_of
from schmp_estimators.lda.kernels.rows import add_row
from schmp_estimators.lda.programs.documents import DocumentSampler, document_loop


@maker
def begin(cell):
    return np.empty(len(cell.total)), np.empty(len(cell.total))


@inlined
def draw(own, cell, document, token, word, old, counter):
    row, ends = own
    row[:] = 0.0
    add_row(cell.block, word, row)
    total = 0.0
    for k in range(len(row)):
        less = 1 if k == np.int64(old) else 0
        of_word = row[k] - less + beta_of(cell.seeds, cell.first + word, k, cell.beta)
        inverse = document.inverse_less[k] if less else document.inverse[k]
        total += (document.tokens[k] - less + cell.alpha[k]) * of_word * inverse
        ends[k] = total
    return np.uint64(first_above(ends, 0, len(ends), unit(mix(counter)) * total))


loop = document_loop(begin, draw)


@kernel
def sample(cell):
    return loop(cell)


class GibbsLDA(DocumentSampler):
    kernel = staticmethod(sample)
