"""Fold-in over dense matrices: the procedure step by step, and the maximum that it approaches."""

import numpy as np

FIRST_STEPS, STILL, STILL_SHARE = 2, 0.1, 0.002
TOLERANCE_INNER, TOLERANCE, MAX_STEPS, MAX_ROUNDS = 1e-3, 1e-2, 100, 20


def topics(word_topic, beta):
    """phi (V, K): columns sum to one."""
    return (word_topic + beta) / (word_topic.sum(0) + len(word_topic) * beta)


def step(weight, counts, phi, alpha):
    """One step of expectation-maximisation for all topics."""
    return alpha + weight * (phi.T @ (counts / (phi @ weight)))


def maximum(counts, phi, alpha, n_steps=5000):
    """Proportions after so many steps that nothing moves any more."""
    weight = np.ones(phi.shape[1])
    for _ in range(n_steps):
        weight = step(weight, counts, phi, alpha)
    return weight / weight.sum()


def proportions(counts, phi, alpha):
    """Proportions of one document (V,), the small topics held still between full steps; `alpha` a number or (K,)."""
    n_topics = phi.shape[1]
    if counts.sum() == 0:
        return np.full(n_topics, alpha) / np.full(n_topics, alpha).sum()
    total = counts.sum() + np.full(n_topics, alpha).sum()
    threshold = alpha + min(STILL, STILL_SHARE * counts.sum())
    weight = np.full(n_topics, total / n_topics)
    for _ in range(FIRST_STEPS):
        weight = step(weight, counts, phi, alpha)
    for _ in range(MAX_ROUNDS):
        moving = weight >= threshold
        for _ in range(MAX_STEPS):
            new = np.where(moving, step(weight, counts, phi, alpha), weight)
            change, weight = abs(new - weight).sum(), new
            if change <= TOLERANCE_INNER * total:
                break
        new = step(weight, counts, phi, alpha)
        change, weight = abs(new - weight).sum(), new
        if change <= TOLERANCE * total:
            break
    return weight / weight.sum()


def completion(counts, phi, alpha):
    """Log-likelihood of the odd tokens of one document (V,) given the even ones, and how many were scored."""
    tokens = np.repeat(np.arange(len(counts)), counts)
    if len(tokens) < 2:
        return 0.0, 0
    seen = np.bincount(tokens[0::2], minlength=len(counts))
    scored = tokens[1::2]
    return np.log(phi[scored] @ proportions(seen, phi, alpha)).sum(), len(scored)
