"""Kernels over the documents of a corpus.

They are about tokens in word-major order, blocks of words, first topics, and pairs.

In the E step a document has expected counts n_dk.  The tokens of word w are divided among the
choices of the word in proportion to ``(n_dk + alpha_k) p(w | k)``.  Gibbs sampling draws from the
same weights (Asuncion, Welling, Smyth and Teh, "On smoothing and inference for topic models", UAI
2009, section 2).
"""

import numpy as np

from schmp_estimators.core.jit import copy_to, index, inlined, kernel, part
from schmp_estimators.core.rng import GAMMA, below, mix

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
    """Assign words, heaviest first, each to the block that has cost least so far.

    Among equal blocks it is that of the lowest number.

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
    ``n_blocks / 4`` ns per word.  The greedy rule is at most 4/3 from the best balance (Graham,
    SIAM J. Appl. Math.  1969, "LPT").
    """
    load = np.zeros(n_blocks, np.int64)
    for i in range(len(order)):
        least = 0
        for block in range(1, n_blocks):
            if load[block] < load[least]:
                least = block
        block_of[i] = least
        load[least] += totals[order[i]] + WORD_COST


@kernel
def draw_passages(indptr, indices, counts, rows, numbers, key, ptr, words):
    """Draw tokens of documents, none of them twice.

    Parameters
    ----------
    indptr, indices, counts
        As in `Counts`.
    rows : (n,) int64
        A row for each passage; a row may be there several times.
    numbers : (n,) int64
        The passages' numbers, which address their random bits.
    key : uint64
        Stream of random bits.
    ptr : (n + 1,) int64
        Offsets of the passages in `words`: none is longer than its document.
    words : (ptr[n],) int32
        Mutated: columns of the tokens.

    Notes
    -----
    2 ns per token of the documents (Knuth, "The Art of Computer Programming", section 3.4.2,
    algorithm S).
    """
    for i in range(len(rows)):
        at, wanted = ptr[i], ptr[i + 1] - ptr[i]
        first, last = indptr[rows[i]], indptr[rows[i] + 1]
        left = np.int64(0)
        for entry in range(first, last):
            left += counts[entry]
        counter = mix(key + np.uint64(numbers[i]) * GAMMA)
        for entry in range(first, last):
            for _ in range(counts[entry]):
                if np.int64(below(mix(counter), left)) < wanted:
                    words[at] = indices[entry]
                    at += 1
                    wanted -= 1
                counter += GAMMA
                left -= 1
            if wanted == 0:
                break


#: One token, in the whole numbers in which sums are kept: the same in any order of documents.
TOKEN = 1 << 20


@inlined
def _divide(word, ptr, topic, weight, proportions, products):
    """Put what the topics of a word weigh in a document into `products`, and return the sum."""
    first, n = ptr[word], np.int64(ptr[word + 1] - ptr[word])
    for j in range(n):
        products[index(j)] = (
            proportions[np.uint32(topic[index(first + j)])] * weight[index(first + j)]
        )
    even = np.float32(0.0)
    odd = np.float32(0.0)
    third = np.float32(0.0)
    fourth = np.float32(0.0)
    whole = n - n % 4
    for j in range(0, whole, 4):
        even += products[index(j)]
        odd += products[index(j + 1)]
        third += products[index(j + 2)]
        fourth += products[index(j + 3)]
    total = (even + odd) + (third + fourth)
    for j in range(whole, n):
        total += products[index(j)]
    return total


@kernel
def expect_topics(
    indptr, indices, counts, first, step, ptr, topic, weight, alpha, scratch, expected
):
    """Do the E step: add the expected tokens of each choice of a word, over some documents.

    Parameters
    ----------
    indptr, indices, counts
        As in `Counts`.
    first, step : int
        The documents `first`, ``first + step``, ….
    ptr : (n_words + 1,) int64
        Offsets of words in `topic`.
    topic : (n_entries,) int32
        Choices of each word, each topic once.
    weight : (n_entries,) float32
        Probability of the word in each of these topics, positive.
    alpha : (K,) float32
        Document-topic priors, positive.
    scratch : tuple of float32 arrays
        Working memory: two of shape (K,), and one for the choices of a word.
    expected : (n_entries,) int64
        Mutated: expected tokens are added, in units of ``1 / TOKEN``.

    Notes
    -----
    For each word of a document 4 ns per choice if it has a hundred choices, and 10 ns if it has
    ten.
    """
    proportions, found, products = scratch
    for row in range(first, len(indptr) - 1, step):
        copy_to(alpha, proportions)
        copy_to(alpha, found)
        for entry in range(indptr[row], indptr[row + 1]):
            word = np.int64(indices[index(entry)])
            total = _divide(word, ptr, topic, weight, proportions, products)
            if total > 0.0:
                share = np.float32(counts[index(entry)]) / total
                begin = ptr[word]
                for j in range(ptr[word + 1] - begin):
                    found[np.uint32(topic[index(begin + j)])] += products[index(j)] * share
        for entry in range(indptr[row], indptr[row + 1]):
            word = np.int64(indices[index(entry)])
            total = _divide(word, ptr, topic, weight, found, products)
            if total > 0.0:
                share = np.float32(TOKEN) / total
                begin, n = ptr[word], np.int64(counts[index(entry)])
                for j in range(ptr[word + 1] - begin):
                    expected[index(begin + j)] += n * np.int64(np.int32(products[index(j)] * share))


#: Number of other tokens of its document that are looked at if a token's word has no choices.
_ASKED = 7


@kernel
def draw_known_topics(place, doc_ptr, word_of, ptr, topic, first_token, key, n_topics, out):
    """Draw a topic for each token from the choices of its word, with equal chances.

    If the word has no choices, those of another word of the document are used: random tokens are
    looked at until one has a word with choices.  If none is found, all topics have equal chances.

    Parameters
    ----------
    place, doc_ptr
        As in `TokenShard`.
    word_of : (n_tokens,) int32
        Word of each place.
    ptr : (n_words + 1,) int64
        Offsets of words in `topic`.
    topic : (n_entries,) int32
        Choices of each word.
    first_token : int
        Number of the first token in the corpus; it addresses random bits.
    key : uint64
        Stream of random bits.
    n_topics : int
        At least 1.
    out : (n_tokens,) uint8, int16 or int32
        Mutated: topics in document order.
    """
    for document in range(len(doc_ptr) - 1):
        begin, end = doc_ptr[document], doc_ptr[document + 1]
        for i in range(begin, end):
            bits = mix(key + np.uint64(first_token + i) * GAMMA)
            word = word_of[place[i]]
            n = ptr[word + 1] - ptr[word]
            for _ in range(_ASKED):
                if n > 0:
                    break
                word = word_of[place[begin + np.int64(below(bits, end - begin))]]
                n = ptr[word + 1] - ptr[word]
                bits = mix(bits)
            out[i] = (
                topic[ptr[word] + np.int64(below(bits, n))]
                if n > 0
                else np.int64(below(bits, n_topics))
            )


@part
def _leave(word, window, slot_ptr, slot, since, documents):
    """Count the windows in which a word was beside each of the best words of its topics.

    Windows before `window` are counted.
    """
    n_best = since.shape[1]
    for at in range(slot_ptr[word], slot_ptr[word + 1]):
        k = slot[at] // n_best
        i = slot[at] - k * n_best
        if since[k, i] >= 0:
            for j in range(n_best):
                if since[k, j] >= 0:
                    upper, lower = max(i, j), min(i, j)
                    documents[k, upper * (upper + 1) // 2 + lower] += window - max(
                        since[k, i], since[k, j]
                    )
            since[k, i] = -1


@kernel
def count_in_windows(ptr, words, slot_ptr, slot, width, since, documents):
    """Count the windows of each pair among the best words of each topic.

    A window is `width` consecutive tokens of a text, or a shorter text.  As in gensim, a word comes
    into a window with its token at the end, and leaves it with the first token that leaves it, also
    if it has another one there.

    Parameters
    ----------
    ptr : (n_texts + 1,) int64
        Offsets of the texts in `words`.
    words : (n_tokens,) int32
        Columns of the words, -1 for words that are best ones of no topic.
    slot_ptr, slot : arrays of `BestWords`
        Where a word is among the best ones.
    width : int
        Tokens of a window.
    since : (n_topics, n_best) int64
        -1, for use here only: from which window on a word has been there.
    documents : (n_topics, n_best * (n_best + 1) / 2) int64
        Mutated: adds the numbers of windows of a topic in which its words of rank i and j <= i are,
        in cell ``i * (i + 1) / 2 + j``.

    Notes
    -----
    A token of a best word takes the time of all best words of its topics; windows without one take
    none.
    """
    n_best = since.shape[1]
    for text in range(ptr.size - 1):
        first, stop = ptr[text], ptr[text + 1]
        for token in range(first, stop):
            window = max(0, token - first - width + 1)
            if window > 0 and words[token - width] >= 0:
                _leave(words[token - width], window, slot_ptr, slot, since, documents)
            word = words[token]
            if word >= 0:
                for at in range(slot_ptr[word], slot_ptr[word + 1]):
                    k = slot[at] // n_best
                    if since[k, slot[at] - k * n_best] < 0:
                        since[k, slot[at] - k * n_best] = window
        n_windows = max(1, stop - first - width + 1)
        for token in range(max(first, stop - width), stop):
            if words[token] >= 0:
                _leave(words[token], n_windows, slot_ptr, slot, since, documents)
