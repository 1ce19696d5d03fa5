"""How many documents, or windows, have two of the best words of a topic: integers, to be summed up in any order."""

from schmp_estimators.core.jit import kernel, part


@part
def _leave(word, window, slot_ptr, slot, since, documents):
    """Count the windows in which a word was beside each of the best words of its topics, up to but for `window`."""
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

    A window is `width` consecutive tokens of a text, or a shorter text.  As in gensim, a word comes into a window with
    its token at the end, and leaves it with the first token that leaves it, also if it has another one there.

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
        Mutated: adds the numbers of windows of a topic in which its words of rank i and j <= i are, in cell
        ``i * (i + 1) / 2 + j``.

    Notes
    -----
    A token of a best word takes the time of all best words of its topics; windows without one take none.
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
