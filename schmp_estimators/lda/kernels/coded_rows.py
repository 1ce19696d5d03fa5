"""Rows of counts on their way between processes, in few bytes.

The *coded row* of a word that has tokens is either listed or marked, whichever is shorter, long gaps aside.

listed   0; then for each topic that has tokens, ascending, its coded length, as in `kernels.exchange`
marked   how many topics have tokens; a bit for each topic, lowest first, whether it has; for each that has four bits,
         lower half of a byte first: its tokens less one, or 15 if these are 15 or more; for the latter, one after the
         other, its tokens less 16

Numbers are written in 7 bits a byte.  A row ends where it has all tokens of its word, which the reader knows; of a word
without tokens there is nothing.  Rows may follow each other in any number.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from schmp_estimators.core.jit import inlined, kernel
from schmp_estimators.lda.kernels.exchange import put_number

#: What four bits can tell of the tokens of a topic, one less than they are; beyond, more bytes follow.
_MOST = 15
#: The highest shift of a number's last seven bits: numbers have 35 bits at most.
_LAST_SHIFT = 28


def most_bytes(n_rows: int, n_tokens: int, n_topics: int) -> int:
    """Return how many bytes coded rows take at most that have so many tokens together."""
    entries = min(n_tokens, n_rows * n_topics)
    # A number takes a byte, and another one only where it is 128 or more, and 5 at most; so do gaps.
    return 6 * n_rows + 2 * entries + min((entries + n_tokens) // 64, 5 * entries) + n_rows * (n_topics // 6)


def _lowest_bit(typing_context: Any, bits: Any) -> Any:
    """Return the number of the lowest bit that is set; there is one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


_lowest: Any = intrinsic(_lowest_bit)


@inlined
def _put_listed(row, marks, out, at):
    one = np.uint64(1)
    out[at] = 0
    at += 1
    last = -1
    for word in range(len(marks)):
        bits = marks[word]
        while bits:
            topic = np.int64(np.uint64(word << 6) + _lowest(bits))
            n = np.int64(row[np.uint64(topic)])
            value = (topic - last - 1) << 1 | (n > 1)
            if value < 128 and n < 130:  # nearly always, so that it can be guessed, which n > 1 cannot
                out[np.uint64(at)] = value
                out[np.uint64(at + 1)] = n - 2
                at += 1 + (n > 1)
            else:
                at = put_number(value, at, out)
                if n > 1:
                    at = put_number(n - 2, at, out)
            last = topic
            bits &= bits - one
    return at


@inlined
def _put_marked(row, marks, entries, out, at):
    n_topics, one = len(row), np.uint64(1)
    at = put_number(entries, at, out)
    for byte in range((n_topics + 7) >> 3):
        out[at + byte] = np.uint8(marks[byte >> 3] >> np.uint64((byte & 7) << 3))
    half = 2 * (at + ((n_topics + 7) >> 3))
    at = (half + entries + 1) >> 1
    pending = 0
    for word in range(len(marks)):
        bits = marks[word]
        while bits:
            n = np.int64(row[np.uint64(word << 6) + _lowest(bits)])
            pending |= min(n - 1, _MOST) << ((half & 1) << 2)
            out[np.uint64(half >> 1)] = pending
            pending = 0 if half & 1 else pending
            half += 1
            if n < 129 + _MOST:
                out[np.uint64(at)] = n - _MOST - 1
                at += n > _MOST
            else:
                at = put_number(n - _MOST - 1, at, out)
            bits &= bits - one
    return at


@inlined
def _put_row(row, marks, out, at):
    """Write a row, whose topics with tokens are marked in bits, and return where the next one begins."""
    n_topics, one = len(row), np.uint64(1)
    entries = more = large = 0
    for word in range(len(marks)):
        bits = marks[word]
        while bits:
            n = row[np.uint64(word << 6) + _lowest(bits)]
            entries += 1
            more += n > 1
            large += n > _MOST
            bits &= bits - one
    if entries + more <= (n_topics >> 3) + (entries >> 1) + large:
        return _put_listed(row, marks, out, at)
    return _put_marked(row, marks, entries, out, at)


@inlined
def _get(code, at):
    """Return a number and where the next one begins; -1 if it does not end where numbers must."""
    value, shift = np.int64(0), 0
    while at < len(code) and shift <= _LAST_SHIFT:
        byte = np.int64(code[np.uint64(at)])
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
    return np.int64(0), -1


@inlined
def _add_listed(code, at, n_tokens, row):
    last, before_end = -1, len(code) - 1
    while n_tokens > 0:
        n = np.int64(1)
        value = np.int64(code[np.uint64(at)]) if at < before_end else np.int64(128)
        rest = np.int64(code[np.uint64(at + 1)]) if at < before_end else np.int64(128)
        if (value | rest & -(value & 1)) < 128:  # nearly always, so that it can be guessed, which value & 1 cannot
            n += (value & 1) * (rest + 1)
            at += 1 + (value & 1)
        else:
            value, at = _get(code, at)
            if at >= 0 and value & 1:
                n, at = _get(code, at)
                n += 2
        last += 1 + (value >> 1)
        n_tokens -= n
        if at < 0 or last >= len(row) or n_tokens < 0:
            return -1
        row[np.uint64(last)] += n
    return at


@inlined
def _add_marked(code, at, entries, n_tokens, row):
    n_marks = (len(row) + 7) >> 3
    half = 2 * (at + n_marks)
    end = half + entries
    if entries > len(row) or (end + 1) >> 1 > len(code):
        return -1
    marks, at, before_end = at, (end + 1) >> 1, len(code) - 1
    for byte in range(n_marks):
        bits = np.uint64(code[np.uint64(marks + byte)])
        while bits:
            topic = (byte << 3) + np.int64(_lowest(bits))
            bits &= bits - np.uint64(1)
            n = (np.int64(code[np.uint64(half >> 1)]) >> ((half & 1) << 2) & _MOST) + 1
            half += 1
            is_large = n > _MOST
            rest = np.int64(code[np.uint64(min(at, before_end))]) & -np.int64(is_large)
            if rest < 128 and at <= before_end:
                n += rest
                at += is_large
            elif is_large:
                rest, at = _get(code, at)
                n += rest
            n_tokens -= n
            if at < 0 or half > end or topic >= len(row) or n_tokens < 0:
                return -1
            row[np.uint64(topic)] += n
    return at if half == end and n_tokens == 0 else -1


@kernel
def code_topics(word_ptr, begins, n_words, topic, n_topics, out):
    """Code the rows of a shard's tokens of some words.

    Parameters
    ----------
    word_ptr : (n_words + 1,) int64
        Offsets of the words in `topic`.
    begins, n_words : (n_blocks,) int64
        Of each block, the number of its first word and how many words are coded from there on.
    topic : (n_tokens,) int16 or int32
        Topics in word-major order, perhaps a strided view.
    n_topics : int
        K.
    out : (most_bytes(...),) uint8
        Mutated.

    Returns
    -------
    (n_blocks,) int64
        Where the rows of each block end.

    Notes
    -----
    2 ns per token, 4 ns per entry of a row.
    """
    row, marks = np.zeros(n_topics, np.int32), np.zeros((n_topics + 63) >> 6, np.uint64)
    ends, at = np.empty(len(begins), np.int64), 0
    for block in range(len(begins)):
        for word in range(begins[block], begins[block] + n_words[block]):
            first, last = word_ptr[word], word_ptr[word + 1]
            if first == last:
                continue
            for i in range(first, last):
                k = np.uint64(topic[np.uint64(i)])
                row[k] += 1
                marks[k >> np.uint64(6)] |= np.uint64(1) << (k & np.uint64(63))
            at = _put_row(row, marks, out, at)
            for word64 in range(len(marks)):
                bits = marks[word64]
                while bits:
                    row[np.uint64(word64 << 6) + _lowest(bits)] = 0
                    bits &= bits - np.uint64(1)
                marks[word64] = 0
        ends[block] = at
    return ends


@kernel
def code_rows(rows, out):
    """Code dense rows, and return how many bytes they take.

    Parameters
    ----------
    rows : (n_words, K) int32
        Counts.
    out : (most_bytes(...),) uint8
        Mutated.

    Notes
    -----
    1 ns per count, 3 ns per entry that is not zero.
    """
    n_topics = rows.shape[1]
    marks, at = np.zeros((n_topics + 63) >> 6, np.uint64), 0
    for word in range(len(rows)):
        row, is_empty = rows[word], True
        for word64 in range(len(marks)):
            bits, first = np.uint64(0), word64 << 6
            for k in range(min(64, n_topics - first)):
                bits |= np.uint64(row[np.uint64(first + k)] != 0) << np.uint64(k)
            marks[word64] = bits
            is_empty &= bits == 0
        if not is_empty:
            at = _put_row(row, marks, out, at)
    return at


@kernel
def add_coded_rows(n_tokens, code, rows):
    """Add coded rows to dense ones.

    Parameters
    ----------
    n_tokens : (n_words,) int64
        Tokens of each word; of several shards, one after the other.
    code : (n_bytes,) uint8
        Their rows.
    rows : (n_rows, K) int32
        Mutated: of all words; those of every shard are added.

    Returns
    -------
    bool
        Whether the code is one of such rows; if not, some may have been added.

    Notes
    -----
    2 ns per entry of a row.
    """
    at, word = 0, -1
    for entry in range(len(n_tokens)):
        word = word + 1 if word + 1 < len(rows) else 0
        n = n_tokens[entry]
        if n == 0:
            continue
        entries, at = _get(code, at)
        if at < 0:
            return False
        if entries == 0:
            at = _add_listed(code, at, n, rows[word])
        else:
            at = _add_marked(code, at, entries, n, rows[word])
        if at < 0:
            return False
    return at == len(code)
