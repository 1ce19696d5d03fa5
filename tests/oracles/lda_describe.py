"""What describes topics, word by word and document by document."""

import math

import numpy as np
from scipy.stats import entropy
from sklearn.metrics.pairwise import cosine_similarity


def relevance(components, lam):
    """Relevance of every word to every topic, from pseudo-counts.

    This is definition 1 of Sievert and Shirley 2014.
    """
    phi = components / components.sum(axis=1, keepdims=True)
    return lam * np.log(phi) + (1 - lam) * (
        np.log(phi) - np.log(components.sum(axis=0) / components.sum())
    )


def coherence(topics, documents, measure, epsilon=1e-12):
    """Mean over the pairs of words of each topic; documents are sets of words.

    With a word that no document has a pair counts as 0; in "u_mass" only if it is the one that
    ranks higher.
    """

    def share(*words):
        return sum(all(word in document for word in words) for document in documents) / len(
            documents
        )

    def value(lower, upper):
        both = share(lower, upper) + epsilon
        if measure == "u_mass":
            return math.log(both / share(upper)) if share(upper) else 0.0
        alone = share(lower) * share(upper)
        return math.log(both / alone) / -math.log(both) if alone else 0.0

    means = []
    for words in topics:
        values = [value(words[i], words[j]) for i in range(len(words)) for j in range(i)]
        means.append(math.fsum(values) / len(values) if values else math.nan)
    return means


def windows(texts, width):
    """The sets of words of all windows.

    As in gensim a word goes with the first of its tokens that leaves.
    """
    for text in texts:
        present = set(text[:width])
        yield frozenset(present)
        for at in range(len(text) - width):
            present.discard(text[at])
            present.add(text[at + width])
            yield frozenset(present)


def windowed_coherence(topics, texts, measure, width):
    """The measures "c_npmi" and "c_v".

    "c_v" is the mean cosine of a word's NPMIs with all words and the sum of those of all words.
    """
    found = [*windows(texts, width)]
    if measure == "c_npmi":
        return coherence(topics, found, "npmi")

    means = []
    for words in topics:
        vectors = [
            [coherence([[one, other]], found, "npmi")[0] for other in words] for one in words
        ]
        means.append(cosine_similarity(vectors, [np.sum(vectors, axis=0)]).mean())
    return means


def diagnostics(tokens, counts, best, beta, seeds):
    """What MALLET's TopicModelDiagnostics writes of each topic, from the definitions.

    `tokens` are documents, words and topics; `counts` and `seeds` (K, V) of words in topics, `best`
    words of topics.
    """
    n_topics, n_words = counts.shape
    document, word, topic = tokens
    present = np.zeros((document.max(initial=0) + 1, n_topics, n_words), bool)
    present[document, topic, word] = True
    in_document = np.zeros(present.shape[:2])
    np.add.at(in_document, (document, topic), 1)
    in_document = in_document[in_document.any(axis=1)]
    phi = (counts + beta + seeds) / (counts + beta + seeds).sum(axis=1, keepdims=True)
    found = []
    for k, total in enumerate(counts.sum(axis=1)):
        sizes, own = in_document[in_document[:, k] > 0, k], counts[k] > 0
        shares = counts[k, own] / total if total else np.array([np.nan])
        everywhere = counts.sum(axis=0)[own] / counts.sum() if total else np.array([np.nan])

        def pair(i, j, of_topic=present[:, k]):
            return math.log(
                ((of_topic[:, i] & of_topic[:, j]).sum() + beta) / (of_topic[:, j].sum() + beta)
            )

        pairs = [pair(one, other) for n, one in enumerate(best[k]) for other in best[k][:n]]
        firsts = (in_document.argmax(axis=1) == k).sum()
        scored = [w for w in best[k] if counts[k, w]]
        found.append(
            {
                "tokens": total,
                "document_entropy": entropy(sizes) if sizes.size else np.nan,
                "rank_1_docs": firsts / sizes.size if sizes.size else np.nan,
                "coherence": math.fsum(pairs) if sizes.size else np.nan,
                "uniform_dist": (shares * np.log(shares * n_words)).sum(),
                "corpus_dist": (shares * np.log(shares / everywhere)).sum(),
                "eff_num_words": 1 / (shares**2).sum(),
                "exclusivity": (phi[k, scored] / phi[:, scored].sum(axis=0)).sum() / len(best[k]),
            }
        )
    return found
