"""From counts to tokens: kernels that lay out the tokens of a shard and divide the vocabulary into blocks."""

import numpy as np

from schmp_estimators.core.jit import kernel

#: What a word costs beside its tokens, in tokens: its offsets, its row and the start of its loop.
WORD_COST = 4


@kernel
def place_tokens(
    indptr, indices, counts, layout_of, cursor, first_doc, first_token, doc_ptr, place
):
    """Give every token of a CSR piece its place in word-major order, as a counting sort does.

    Parameters
    ----------
    indptr, indices, counts
        As in `Counts`.
    layout_of : (n_words,) int32
        Number of a column in the layout.
    cursor : (n_words,) int64
        Mutated: next free place of each word of the layout.
    first_doc, first_token : int
        Number of the piece's first document and token in the shard.
    doc_ptr : (n_docs + 1,) int64
        Mutated: ends of the piece's documents.
    place : (n_tokens,) uint32
        Mutated: places of the piece's tokens, in document order.

    Returns
    -------
    int
        Number of the token after the piece.

    Notes
    -----
    2 ns per token; counts are expanded on the fly.
    """
    token = first_token
    for row in range(len(indptr) - 1):
        for i in range(indptr[row], indptr[row + 1]):
            word = layout_of[indices[i]]
            start = cursor[word]
            n = np.int64(counts[i])
            for k in range(n):
                place[token + k] = np.uint32(start + k)
            token += n
            cursor[word] = start + n
        doc_ptr[first_doc + row + 1] = token
    return token


@kernel
def assign_blocks(totals, order, n_blocks, block_of):
    """Assign words, heaviest first, each to the block that has cost least so far (the lowest number among equals).

    Parameters
    ----------
    totals : (n_words,) int64
        Tokens by column.
    order : (n_words,) int64
        Columns by descending total.
    n_blocks : int
        Number of blocks.
    block_of : (n_words,) int32
        Mutated: block of each entry of `order`.

    Notes
    -----
    ``n_blocks / 4`` ns per word.  The greedy rule is at most 4/3 from the best balance (Graham, SIAM J. Appl. Math.
    1969, "LPT").
    """
    load = np.zeros(n_blocks, np.int64)
    for i in range(len(order)):
        least = 0
        for block in range(1, n_blocks):
            if load[block] < load[least]:
                least = block
        block_of[i] = least
        load[least] += totals[order[i]] + WORD_COST
