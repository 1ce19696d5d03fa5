"""Fold-in over dense matrices: the maximum, by very many steps."""

import numpy as np


def topics(word_topic, beta):
    """phi (V, K): columns sum to one."""
    return (word_topic + beta) / (word_topic.sum(0) + len(word_topic) * beta)


def maximum(counts, phi, alpha, n_steps=20_000):
    """Proportions of documents (D, V) after so many steps that nothing moves any more; `alpha` a number or (K,)."""
    weight = np.ones((len(counts), phi.shape[1]))
    for _ in range(n_steps):
        weight = alpha + weight * ((counts / (weight @ phi.T)) @ phi)
    return weight / weight.sum(1, keepdims=True)


def completion(counts, phi, alpha):
    """Log-likelihood of the odd tokens of one document (V,) given the even ones, and how many were scored."""
    tokens = np.repeat(np.arange(len(counts)), counts)
    if len(tokens) < 2:
        return 0.0, 0
    seen = np.bincount(tokens[0::2], minlength=len(counts))
    scored = tokens[1::2]
    return np.log(phi[scored] @ maximum(seen[None], phi, alpha, 5000)[0]).sum(), len(scored)
