"""
Progress for each token, progress in time
=========================================

A sampler of topic models can be faster because it makes more progress with each token, or because
it visits more tokens per second.  Kim et al. (EuroSys 2016) show both separately: the objective
against the number of data samples visited, and this number against time.  Together they give the
objective against time.

Here the sampler "warp" proposes one, two or four new topics for each token in each pass
(``mh_steps``).
"""

# %%
import matplotlib.pyplot as plt
from matplotlib.ticker import EngFormatter
from sklearn.feature_extraction.text import CountVectorizer

from schmp_estimators import ConvergenceDisplay, DistributedLDA
from schmp_estimators.datasets import load_docstrings

counter = CountVectorizer(
    stop_words="english", min_df=5, max_df=0.1, token_pattern=r"\b[a-z]{3,}\b"
)
X = counter.fit_transform(load_docstrings(["sklearn"]).data)
print(f"{X.shape[0]:,} documents, {X.shape[1]:,} words, {X.sum():,} tokens")

params = {
    "sampler": "warp",
    "doc_topic_prior": 0.1,
    "topic_word_prior": 0.02,
    "evaluate_every": 2,
    "random_state": 0,
}
for m in (1, 2, 4):  # loads the compiled kernels, so that no curve has to wait for them
    DistributedLDA(2, mh_steps=m, max_iter=2, **params).fit(X)
fits = {m: DistributedLDA(50, mh_steps=m, max_iter=60, **params).fit(X) for m in (1, 2, 4)}

# %%
# The left picture shows that more proposals make more progress with the same number of tokens.  The
# middle one shows their cost, and the right one the progress over time.
figure, (progress, throughput, time) = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained")
for (m, lda), colour in zip(fits.items(), ["#e08e45", "#2f7ea6", "#a05195"], strict=True):
    name = f"{m} proposal{'s' * (m > 1)}"
    ConvergenceDisplay.from_estimator(lda, x="samples", ax=progress, name=name, color=colour)
    seconds, tokens = zip(
        *[(record["seconds"], record["samples"]) for record in lda.history_], strict=True
    )
    throughput.plot(seconds, tokens, color=colour)
    ConvergenceDisplay.from_estimator(lda, x="seconds", ax=time, name=name, color=colour)
progress.set_title("Progress for each token")
throughput.set(title="Throughput", xlabel="Seconds", ylabel="Tokens operated upon")
time.set_title("Progress in time")
records = [record for lda in fits.values() for record in lda.history_ if "log_likelihood" in record]
bottom = sorted(record["log_likelihood"] for record in records)[6]
for ax in (progress, time):
    ax.set(ylim=(bottom, None), ylabel="Joint log-likelihood")
for axis in (progress.xaxis, progress.yaxis, throughput.yaxis, time.yaxis):
    axis.set_major_formatter(EngFormatter())
plt.show()

# %%
# The program checks only the left picture.  The other two depend on the machine that built this
# page.
after_20 = [lda.history_[19]["log_likelihood"] for lda in fits.values()]
print(
    "After 20 sweeps, the log-likelihood per token:",
    *[f"{value / X.sum():.3f}" for value in after_20],
)
assert after_20[0] < after_20[1] < after_20[2], (
    "more proposals bring more progress in the same number of sweeps"
)
