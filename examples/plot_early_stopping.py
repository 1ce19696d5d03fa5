"""
When to stop
============

The likelihood of the training documents keeps rising for nearly the whole fit.
`~schmp_estimators.HeldOutPerplexity` measures how well the model predicts other documents, and ends
the fit when its predictions no longer improve.
"""

# %%
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import train_test_split

from schmp_estimators import DistributedLDA, HeldOutPerplexity
from schmp_estimators.datasets import load_docstrings

counter = CountVectorizer(
    stop_words="english", min_df=5, max_df=0.1, token_pattern=r"\b[a-z]{3,}\b"
)
X = counter.fit_transform(load_docstrings(["scipy", "sklearn"]).data)
X_train, X_test = train_test_split(X, test_size=0.15, random_state=0)

# %%
# With ``patience=2`` the fit stops after two measurements without an improvement of at least 0.2
# percent.  ``HeldOutPerplexity`` is a callback of scikit-learn, so it can be combined with others,
# such as a progress bar.
watch = HeldOutPerplexity(X_test, every=10, patience=2, tol=0.002)
lda = DistributedLDA(
    50, doc_topic_prior=0.1, topic_word_prior=0.02, max_iter=1000, evaluate_every=2, random_state=0
)
lda.set_callbacks(watch).fit(X_train)

# %%
import matplotlib.pyplot as plt
from matplotlib.ticker import EngFormatter

from schmp_estimators import ConvergenceDisplay

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
ConvergenceDisplay.from_estimator(lda, ax=left, name="training documents", color="#7a8a93")
left.set(
    title="Still rising",
    ylabel="Joint log-likelihood",
    ylim=(lda.history_[9]["log_likelihood"], None),
)
left.yaxis.set_major_formatter(EngFormatter())
sweeps, perplexity = zip(*[record.values() for record in watch.history_], strict=True)
best = min(range(len(perplexity)), key=perplexity.__getitem__)
right.plot(sweeps, perplexity, "o-", color="#2f7ea6", label="held-out documents")
right.plot(sweeps[best], perplexity[best], "o", color="#e08e45", markersize=9, label="best")
right.set(title=f"Stopped after {lda.n_iter_} sweeps", xlabel="Sweeps", ylabel="Perplexity")
right.legend()
plt.show()

# %%
print(
    f"Stopped after {lda.n_iter_} sweeps at perplexity {perplexity[-1]:.0f}; the best was "
    f"{min(perplexity):.0f}."
)
assert lda.n_iter_ < 1000 and perplexity[-1] < 1.01 * min(perplexity) < 0.9 * perplexity[0]
