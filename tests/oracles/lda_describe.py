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
