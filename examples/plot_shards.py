"""
What a stale total costs
========================

The exact sampler "fplus" updates counts after each token.  In each step of a rotation,
:term:`shards <shard>` work on different documents and words.  But all shards change the totals of
the topics, and each knows only its own changes.  Lee et al. (NIPS 2014, supplement) measure the
error of these totals by the *s-error*, between 0 and 2.  Does the error do harm?  We divide a
corpus into up to 64 shards.  With more shards, steps are shorter, so the totals are corrected more
often.
"""

# %%
from sklearn.feature_extraction.text import CountVectorizer

from schmp_estimators import DistributedLDA
from schmp_estimators.datasets import load_docstrings

counter = CountVectorizer(
    stop_words="english", min_df=5, max_df=0.1, token_pattern=r"\b[a-z]{3,}\b"
)
X = counter.fit_transform(load_docstrings(["sklearn"]).data)
n_tokens = X.sum()
print(f"{X.shape[0]:,} documents, {X.shape[1]:,} words, {n_tokens:,} tokens")

params = {"sampler": "fplus", "doc_topic_prior": 0.1, "topic_word_prior": 0.02, "random_state": 0}
numbers, N_SWEEPS = [1, 4, 16, 64], 15
fits = {
    n: DistributedLDA(50, n_shards=n, max_iter=N_SWEEPS, evaluate_every=1, **params).fit(X)
    for n in numbers
}

# %%
import matplotlib.pyplot as plt

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
for (n, lda), colour in zip(
    fits.items(), ["#2b3a42", "#2f7ea6", "#e08e45", "#a05195"], strict=True
):
    sweeps = [record["iterations"] for record in lda.history_]
    if n > 1:
        left.plot(
            sweeps,
            [record["s_error"] for record in lda.history_],
            color=colour,
            label=f"{n} shards",
        )
    objective = [record["log_likelihood"] / n_tokens for record in lda.history_]
    right.plot(
        sweeps,
        objective,
        color=colour,
        label=f"{n} shard{'s' * (n > 1)}",
        linewidth=2.5 if n == 1 else 1.3,
    )
left.set(title="How stale the totals are", xlabel="Sweeps", ylabel="s-error", ylim=(0, None))
right.set(title="Progress", xlabel="Sweeps", ylabel="Joint log-likelihood per token")
left.legend()
right.legend()
plt.show()

# %%
final = {n: float(lda.history_[-1]["log_likelihood"] / n_tokens) for n, lda in fits.items()}
worst = max(record["s_error"] for record in fits[64].history_)
print(
    f"Log-likelihood per token after {N_SWEEPS} sweeps:",
    {n: round(value, 3) for n, value in final.items()},
)
difference = abs(final[64] / final[1] - 1)
print(
    f"64 shards: s-error at most {worst:.3f} of 2, log-likelihood within {difference:.2%} of that "
    "of 1 shard."
)
assert max(record["s_error"] for record in fits[1].history_) == 0
assert difference < 0.02
