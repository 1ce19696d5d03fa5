"""Other libraries' topic models, trained on our corpora and scored by our document completion."""

from __future__ import annotations

import time

import numpy as np
from scipy import sparse

from schmp_estimators import DistributedLDA

#: Of all contestants, but where each has its own defaults.
PRIORS = {"doc_topic_prior": 0.1, "topic_word_prior": 0.01}
#: Counts of variational methods are no whole numbers: so many of ours stand for one of theirs.
FINE = 1000


def make_tomotopy(train, k, alpha, seed):
    """Return tomotopy's model of a corpus, before its first sweep.

    Like this it learns its document-topic priors.
    """
    import tomotopy

    peer = tomotopy.LDAModel(k=k, alpha=alpha, eta=PRIORS["topic_word_prior"], seed=seed, rm_top=0)
    words = np.char.mod("%d", np.arange(train.shape[1]))
    for d in range(train.shape[0]):
        row = slice(*train.indptr[d : d + 2])
        peer.add_doc(np.repeat(words[train.indices[row]], train.data[row]).tolist())
    return peer


def tomotopy_model(train, k, own_priors=False):
    """Return a model of tomotopy, ready to train.

    By default it has the priors of all contestants, and they stay.
    """
    peer = make_tomotopy(
        train, k, PRIORS["doc_topic_prior"], seed=1
    )  # the values are its own defaults, too
    if not own_priors:
        peer.optim_interval = 0
    peer.train(0)
    return peer


def trained(peer, sweeps):
    """Return the CPU seconds that some more sweeps of tomotopy take."""
    began = time.process_time()
    peer.train(sweeps, workers=1)
    return time.process_time() - began


def of_tomotopy(peer, n_words):
    """Return an estimator of ours with tomotopy's topics, and its priors as they are by now."""
    counts = np.zeros((peer.k, n_words))
    column = [int(word) for word in peer.used_vocabs]
    for topic in range(peer.k):
        counts[topic, column] = peer.get_topic_word_dist(topic, normalize=False) - peer.eta
    return _estimator(counts, np.array(peer.alpha, np.float64), peer.eta)


def tomotopy_perplexity(peer, n_words, test):
    """Return the held-out perplexity of tomotopy's topics, by document completion as ours."""
    return of_tomotopy(peer, n_words).perplexity(test)


def of_scikit_learn(train, k, own_priors=False):
    """Return an estimator of ours with scikit-learn's topics, and its CPU seconds.

    They are those of LatentDirichletAllocation.
    """
    from sklearn.decomposition import LatentDirichletAllocation

    peer = LatentDirichletAllocation(k, random_state=0, **({} if own_priors else PRIORS))
    began = time.process_time()
    peer.fit(train)
    seconds = time.process_time() - began
    alpha, beta = peer.doc_topic_prior_, peer.topic_word_prior_
    return _estimator(FINE * (peer.components_ - beta), alpha, FINE * beta), seconds


def stream_of_gensim(X, batches, k, options):
    """Return an estimator of ours with the topics of gensim's online variational method.

    There is one update a batch.
    """
    from gensim.matutils import Sparse2Corpus
    from gensim.models import LdaModel

    peer = LdaModel(
        num_topics=k, id2word={n: str(n) for n in range(X.shape[1])}, random_state=0,
        alpha=PRIORS["doc_topic_prior"], eta=PRIORS["topic_word_prior"],
    )  # fmt: skip
    for batch in batches:
        peer.update(Sparse2Corpus(X[batch], documents_columns=False))
    beta = PRIORS["topic_word_prior"]
    counts = np.maximum(peer.state.get_lambda() - beta, 0.0)
    return _estimator(FINE * counts, PRIORS["doc_topic_prior"], FINE * beta)


def coherence_of_gensim(measure, topics, X):
    """Return a call that computes gensim's coherence of topics, lists of words."""
    from gensim.corpora import Dictionary
    from gensim.models.coherencemodel import CoherenceModel

    rows = [(X.indices[a:b], X.data[a:b]) for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    dictionary = Dictionary([[str(word) for word in range(X.shape[1])]])
    number = dictionary.token2id
    if measure == "u_mass":
        given = {
            "corpus": [
                [(number[str(w)], int(n)) for w, n in zip(*row, strict=True)] for row in rows
            ]
        }
    else:
        texts = [[str(word) for word in np.repeat(*row)] for row in rows]
        given = {"texts": texts, "window_size": max(map(len, texts))}
    return lambda: CoherenceModel(
        topics=topics,
        dictionary=dictionary,
        coherence=measure,
        topn=len(topics[0]),
        processes=1,
        **given,
    ).get_coherence_per_topic()


def stream_of_tomotopy(X, batches, k, options):
    """Return an estimator of ours with tomotopy's topics, fitted at once.

    It cannot add documents later.
    """
    peer = tomotopy_model(X[np.concatenate(batches)], k)
    trained(peer, options["max_iter"])
    return of_tomotopy(peer, X.shape[1])


def rival(name, train, test, k, own_priors):
    """Return CPU seconds and held-out perplexity of tomotopy or scikit-learn.

    tomotopy has 100 sweeps, scikit-learn its default fit.
    """
    if name == "scikit-learn":
        one, seconds = of_scikit_learn(train, k, own_priors)
        return seconds, one.perplexity(test)
    peer = tomotopy_model(train, k, own_priors)
    return trained(peer, 100), tomotopy_perplexity(peer, train.shape[1], test)


def _estimator(counts, alpha, beta):
    """Return an estimator of ours as if fitted to these topics (K, V) with these priors."""
    model = DistributedLDA(len(counts), max_iter=1, init="uniform").fit(
        np.eye(2, counts.shape[1], dtype=np.int32)
    )
    model.topic_word_counts_ = sparse.csc_array(np.rint(counts).astype(np.int32))
    model.doc_topic_prior_, model.topic_word_prior_ = alpha, beta
    return model
