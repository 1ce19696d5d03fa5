"""What describes topics, word by word and document by document."""

import math


def relevance(components, lam):
    """Relevance of every word to every topic, from pseudo-counts: Sievert and Shirley 2014, definition 1."""
    total = sum(map(sum, components))
    found = []
    for row in components:
        phi = [value / sum(row) for value in row]
        p = [sum(other[w] for other in components) / total for w in range(len(row))]
        found.append([lam * math.log(a) + (1 - lam) * math.log(a / b) for a, b in zip(phi, p, strict=True)])
    return found


def coherence(topics, documents, measure, epsilon=1e-12):
    """Mean over the pairs of words of each topic; documents are sets of words.

    With a word that no document has a pair counts as 0; in "u_mass" only if it is the one that ranks higher.
    """

    def share(*words):
        return sum(all(word in document for word in words) for document in documents) / len(documents)

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
    """The sets of words of all windows; as in gensim a word goes with the first of its tokens that leaves."""
    for text in texts:
        present = set(text[:width])
        yield frozenset(present)
        for at in range(len(text) - width):
            present.discard(text[at])
            present.add(text[at + width])
            yield frozenset(present)


def windowed_coherence(topics, texts, measure, width):
    """ "c_npmi", or "c_v": the mean cosine of a word's NPMIs with all words and the sum of those of all words."""
    found = [*windows(texts, width)]
    if measure == "c_npmi":
        return coherence(topics, found, "npmi")

    def cosine(one, other):
        scale = math.hypot(*one) * math.hypot(*other)
        return math.fsum(a * b for a, b in zip(one, other, strict=True)) / scale if scale else 0.0

    means = []
    for words in topics:
        vectors = [[coherence([[one, other]], found, "npmi")[0] for other in words] for one in words]
        whole = [math.fsum(values) for values in zip(*vectors, strict=True)]
        means.append(math.fsum(cosine(vector, whole) for vector in vectors) / len(words))
    return means


def diagnostics(tokens, counts, best, beta, seeds=0.0):
    """What MALLET's TopicModelDiagnostics writes of each topic, from the definitions.

    `tokens` are (document, word, topic); `counts` (K, V) tokens of words in topics, as lists; `best` words of topics.
    """
    n_topics, n_words = len(counts), len(counts[0])
    totals = [sum(row) for row in counts]
    n_tokens, of_words = sum(totals), [sum(column) for column in zip(*counts, strict=True)]
    documents = {}
    for document, word, topic in tokens:
        documents.setdefault(document, []).append((word, topic))
    in_document = [
        [sum(topic == k for _, topic in document) for k in range(n_topics)] for document in documents.values()
    ]
    phi = [
        [(n + beta + seeds) / (total + n_words * (beta + seeds)) for n in row]
        for row, total in zip(counts, totals, strict=True)
    ]
    found = []
    for k in range(n_topics):
        sizes = [row[k] for row in in_document if row[k]]
        words = [{word for word, topic in document if topic == k} for document in documents.values()]
        shares = [n / totals[k] for n in counts[k] if n] if totals[k] else [math.nan]
        everywhere = [n / n_tokens for n, own in zip(of_words, counts[k], strict=True) if own] or [math.nan]
        row = {"tokens": totals[k]}
        row["document_entropy"] = -sum(n / sum(sizes) * math.log(n / sum(sizes)) for n in sizes) if sizes else math.nan
        firsts = sum(row.index(max(row)) == k for row in in_document)
        row["rank_1_docs"] = firsts / len(sizes) if sizes else math.nan

        def pair(i, j, words=words):
            both, one = sum(i in some and j in some for some in words), sum(j in some for some in words)
            return math.log((both + beta) / (one + beta))

        pairs = [pair(best[k][i], best[k][j]) for i in range(len(best[k])) for j in range(i)]
        row["coherence"] = math.fsum(pairs) if sizes else math.nan
        row["uniform_dist"] = sum(p * math.log(p * n_words) for p in shares)
        row["corpus_dist"] = sum(p * math.log(p / q) for p, q in zip(shares, everywhere, strict=True))
        row["eff_num_words"] = 1 / sum(p * p for p in shares)
        row["exclusivity"] = sum(
            phi[k][w] / sum(other[w] for other in phi) for w in best[k] if counts[k][w] + seeds
        ) / len(best[k])
        found.append(row)
    return found
