"""The word pass of the frozen-count sampler for words whose tokens have come from several shards, packed."""

import numpy as np

from schmp_estimators.core.addresses import array_at
from schmp_estimators.core.jit import inlined, kernel
from schmp_estimators.core.rng import GAMMA
from schmp_estimators.lda.blocks import HEAD
from schmp_estimators.lda.kernels.packed import pack_token, unpack_token
from schmp_estimators.lda.kernels.warp import assign_word, sample_tokens, scales
from schmp_estimators.lda.kernels.warp_tables import MAX_SLOTS, SLACK, add_fixed, clear_row, fill_slots


@inlined
def _unpack_some(begin, size, piece, at, n, width, bits, packed_like, room):
    """Unpack n tokens from number `at` of a piece on, and return the piece and the number where the next one is."""
    to = 0
    while to < n:
        packed = array_at(begin[piece], np.int64(size[piece]), packed_like)
        some = min(len(packed) - at, n - to)
        for i in range(some):
            unpack_token(packed[np.uint64(at + i)], width, bits, room, to + i)
        to += some
        at += some
        if at == len(packed):
            piece += 1
            at = 0
    return piece, at


@inlined
def _pack_some(begin, size, piece, at, n, width, bits, packed_like, room):
    """Do what undoes `_unpack_some`."""
    to = 0
    while to < n:
        packed = array_at(begin[piece], np.int64(size[piece]), packed_like)
        some = min(len(packed) - at, n - to)
        for i in range(some):
            packed[np.uint64(at + i)] = pack_token(room, to + i, width, bits)
        to += some
        at = 0
        piece += 1


@inlined
def _count(begin, size, n, packed_like, mask, row, slots, ends):
    """Count the n tokens of a word in `row`, list their topics or make a draw table, and return its shift."""
    if n < HEAD * len(row):
        slot = np.uint64(0)
        for piece in range(len(begin)):
            packed = array_at(begin[piece], np.int64(size[piece]), packed_like)
            for i in range(len(packed)):
                topic = packed[np.uint64(i)] & mask
                slots[slot] = topic
                slot += np.uint64(1)
                row[topic] += 1
        return 0
    for piece in range(len(begin)):
        packed = array_at(begin[piece], np.int64(size[piece]), packed_like)
        for i in range(len(packed)):
            row[packed[np.uint64(i)] & mask] += 1
    return fill_slots(row, MAX_SLOTS, slots, ends)


@kernel
def sample_packed(
    first, last, word_first, fixed, lengths, like, packed_like, bits, at_once, inverse, beta, key, fresh, steps
):  # fmt: skip
    """Do the word pass for some words of which all tokens are here, packed, in a piece from each shard that has some.

    Parameters
    ----------
    first, last, word_first, fixed, lengths, like, inverse, beta, key, fresh, steps
        As in `sample_met`; at the addresses there are packed tokens.
    packed_like : array of uint64
        Of the type of packed tokens.
    bits : int
        As in `pack_tokens`.
    at_once : int
        Tokens of a word that are unpacked at a time.

    Returns
    -------
    int
        Tokens whose topic changed.

    Notes
    -----
    As for `sample_met`, and 3 ns per token to unpack and pack them, some at a time, where the cache has them.
    """
    n_topics, width, n_steps = len(inverse), 1 + len(steps), np.uint64(len(steps))
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    row = np.zeros(n_topics, np.int32)
    slots = np.empty(max(MAX_SLOTS, HEAD * n_topics) + SLACK, like.dtype)
    ends = np.empty(n_topics, np.int64)
    ends_of_fixed = np.empty(n_topics, np.int64)
    room = np.empty(at_once * width, like.dtype)
    moved = 0
    for word in range(first, last):
        begin, end = lengths.begin[lengths.ptr[word] :], lengths.ptr[word + 1] - lengths.ptr[word]
        size = lengths.n_tokens[lengths.ptr[word] :]
        n = np.int64(0)
        for piece in range(end):
            n += np.int64(size[piece])
        if n == 0:
            continue
        address = np.uint64(word_first[word])
        fixed_topic = fixed.topic[fixed.ptr[word] : fixed.ptr[word + 1]]
        fixed_ends = ends_of_fixed[: len(fixed_topic)]
        is_new = fresh and len(fixed_topic) > 0
        shift = 0
        if not is_new:
            shift = _count(begin[:end], size, n, packed_like, mask, row, slots, ends)
        add_fixed(fixed, word, row, fixed_ends)
        n_fixed = fixed_ends[-1] if len(fixed_ends) else 0
        scale, per_topic = scales(n + n_fixed, n_topics, beta)
        counter = key + address * n_steps * GAMMA
        done, at, of_piece = np.int64(0), np.int64(0), np.int64(0)
        while done < n:
            some = min(n - done, at_once)
            tokens = room[: some * width]
            after, following = _unpack_some(begin, size, of_piece, at, some, width, bits, packed_like, tokens)
            if is_new:
                assign_word(tokens, address + np.uint64(done), beta, key, n_topics, fixed_topic, fixed_ends, steps)
            else:
                moved += sample_tokens(
                    tokens, np.uint64(0), np.uint64(some * width), counter, row, inverse, beta, scale, per_topic,
                    slots, shift, ends, n, n_fixed, fixed_topic, fixed_ends, steps,
                )  # fmt: skip
            _pack_some(begin, size, of_piece, at, some, width, bits, packed_like, tokens)
            counter += np.uint64(some) * n_steps * GAMMA
            done += some
            of_piece, at = after, following
        clear_row(row, slots, 0 if is_new else n, fixed, word)
    return moved
