"""Streams: words by name, new and rare ones; earlier tokens that lose weight; interrupted calls."""

import logging
import pickle
from functools import partial

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from callbacks import dies
from corpora import assert_same_bits, column_sums, samplers
from dask import delayed
from scipy import sparse
from scipy.special import gammaln
from sklearn.feature_extraction.text import CountVectorizer

from schmp_estimators import DistributedLDA, TopicDisplay
from schmp_estimators.core.rng import stream_key
from schmp_estimators.exceptions import CheckpointMismatchError
from schmp_estimators.lda import estimator
from schmp_estimators.lda.programs import topics

RNG = np.random.default_rng(0)
WORDS = np.array([f"word{n}" for n in range(24)], object)
#: Documents of three topics, of eight words each.
X = RNG.poisson(RNG.dirichlet([0.3] * 3, 60) @ np.kron(np.eye(3), np.ones(8)) * 3)
FIRST, LATER = RNG.permutation(18), RNG.permutation(np.arange(4, 24))
make = partial(DistributedLDA, 3, max_iter=4, random_state=0, evaluate_every=2)


def stream(lda, columns=(FIRST, LATER)):
    for number, some in enumerate(columns):
        lda.partial_fit(X[20 * number : 20 * number + 20, some], feature_names=WORDS[some])
    return lda


def in_columns(lda, rows):
    """Rows of X in the columns of a model, by brute force."""
    place = {word: at for at, word in enumerate(WORDS)}
    return X[rows][:, [place[word] for word in lda.feature_names_]]


@samplers()
def test_new_words_are_columns_without_earlier_tokens(sampler):
    one = stream(make(sampler=sampler), [FIRST])
    other, names = pickle.loads(pickle.dumps(one)), [*WORDS[FIRST]]
    names += [word for word in WORDS[LATER] if word not in names]
    counts = other.topic_word_counts_.toarray()
    other.topic_word_counts_ = sparse.csc_array(
        np.hstack([counts, np.zeros((3, 6), np.int32)]).astype(np.int32)
    )
    other.n_features_in_, other.feature_names_ = 24, np.array(names, object)
    aligned = in_columns(other, slice(20, 40))
    aligned[:, np.isin(names, WORDS[:4])] = 0  # the batch does not have these
    other.partial_fit(aligned)
    one.partial_fit(X[20:40][:, LATER], feature_names=WORDS[LATER])
    assert one.feature_names_.tolist() == names
    assert_same_bits(one, other)
    assert one.batch_topic_sizes_.sum(axis=1).tolist() == [X[:20, FIRST].sum(), aligned.sum()]


@samplers(quick=["frozen"])
def test_earlier_tokens_are_fractions_of_the_prior_of_words(sampler, monkeypatch):
    half_life, n_shards = 1.7, 2
    lda = make(sampler=sampler, half_life=half_life, n_shards=n_shards, topic_word_prior=0.05)
    base = stream(lda, [FIRST]).topic_word_counts_.toarray() * 0.5 ** (1 / half_life)
    lda.partial_fit(X[20:40][:, LATER], feature_names=WORDS[LATER])
    base = np.hstack([base, np.zeros((3, 6))])
    own = lda.topic_word_counts_.toarray() - base
    batch = in_columns(lda, slice(20, 40)) * np.isin(lda.feature_names_, WORDS[LATER])
    np.testing.assert_allclose(own.sum(axis=0), batch.sum(axis=0))
    np.testing.assert_allclose(own, np.rint(own), atol=1e-9)
    # A fit with such seeds, and with the random numbers and the start of a second batch, is equal.
    monkeypatch.setattr(estimator, "make_seed", lambda _: int(stream_key(0, 1)))
    monkeypatch.setattr(topics, "draw_of_seeds", lambda *_: None)
    options = {"init": "uniform", "n_shards": n_shards, "topic_word_prior": 0.05}
    seeded = make(sampler=sampler, seed_words=base, **options).fit(batch)
    np.testing.assert_array_equal(np.rint(own), seeded.topic_word_counts_.toarray())
    prior = 0.05 + base
    words = (gammaln(prior + np.rint(own)) - gammaln(prior)).sum()
    sums = prior.sum(axis=1)
    of_topics = (gammaln(sums + np.rint(own).sum(axis=1)) - gammaln(sums)).sum()
    assert lda.history_[-1]["word_log_likelihood"] == pytest.approx(words - of_topics, rel=1e-9)


def test_fractions_that_say_nothing_are_left_out():
    lda = make(half_life=0.05, topic_word_prior=0.01).partial_fit(X, feature_names=WORDS)
    lda.partial_fit(X[:20], feature_names=WORDS)  # 2 ** -20 of the first
    np.testing.assert_array_equal(lda.topic_word_counts_.data, np.rint(lda.topic_word_counts_.data))
    np.testing.assert_array_equal(column_sums(lda.topic_word_counts_), X[:20].sum(axis=0))
    lda.set_params(half_life=1e-320).partial_fit(X[:20])
    np.testing.assert_array_equal(column_sums(lda.topic_word_counts_), X[:20].sum(axis=0))


def test_fractions_from_a_hundredth_of_the_prior_on_are_kept():
    lda = make(half_life=1 / 11, topic_word_prior=1.0).partial_fit(X, feature_names=WORDS)
    rest = lda.topic_word_counts_.toarray() * 2.0**-11
    assert rest.min() < 0.01 < rest.max() < 0.1
    lda.partial_fit(0 * X[:1], feature_names=WORDS)
    expected = np.where(rest < 0.01, 0.0, rest)
    np.testing.assert_array_equal(lda.topic_word_counts_.toarray(), expected)
    assert lda.topic_word_counts_.nnz == np.count_nonzero(expected)


def test_fractions_stay_when_the_half_life_ends_and_start_a_warm_fit():
    lda = stream(make(half_life=3.0))
    before = column_sums(lda.topic_word_counts_)
    lda.set_params(half_life=None).partial_fit(in_columns(lda, slice(40, 60)))
    gained = column_sums(lda.topic_word_counts_) - before
    np.testing.assert_allclose(gained, in_columns(lda, slice(40, 60)).sum(axis=0))
    assert lda.set_params(warm_start=True).fit(X).topic_word_counts_.dtype == np.int32


@pytest.mark.parametrize("half_life", [None, 2.0])
def test_all_that_a_model_says_goes_with_its_words(half_life):
    lda = stream(make(half_life=half_life))
    assert lda.n_features_in_ == 24 and lda.components_.shape == (3, 24)
    assert (lda.components_ > 0).all()
    assert lda.get_feature_names_out().tolist() == [f"distributedlda{k}" for k in range(3)]
    assert {*lda.top_words(3).ravel()} <= {*WORDS}
    assert len(lda.topic_names_) == 3
    assert lda.topic_sizes_.sum() == pytest.approx(lda.topic_word_counts_.sum())
    Z = in_columns(lda, slice(40, 60))
    table = lda.topic_diagnostics(Z)
    np.testing.assert_allclose(table["tokens"], lda.topic_sizes_)
    assert np.isfinite(lda.coherence(Z)).all() and np.isfinite(lda.perplexity(Z))
    with pytest.raises(ValueError, match="18 features, but DistributedLDA is expecting 24"):
        lda.transform(X[:, FIRST])
    again = pickle.loads(pickle.dumps(lda)).partial_fit(X[40:], feature_names=WORDS)
    assert_same_bits(lda.partial_fit(X[40:], feature_names=WORDS), again)


def test_any_kind_of_input_is_the_same_stream():
    frames = [pd.DataFrame(X[20 * n : 20 * n + 20, some], columns=WORDS[some])
              for n, some in enumerate((FIRST, LATER))]  # fmt: skip
    expected = stream(make())
    kinds = {
        "frame": lambda one: one,
        "floats": lambda one: sparse.csr_array(one.to_numpy(float)),
        "array": lambda one: da.from_array(one.to_numpy(), chunks=(7, 5)),
        "dask frame": lambda one: dd.from_pandas(one, npartitions=3),
        "delayed": lambda one: [delayed(one[:9].to_numpy()), delayed(one[9:].to_numpy())],
        "spilled": lambda one: one,
    }
    for kind, convert in kinds.items():
        lda = make(spill="auto" if kind == "spilled" else None)
        for one in frames:
            lda.partial_fit(convert(one), feature_names=one.columns)
        assert_same_bits(lda, expected)
        assert hasattr(lda, "feature_names_in_") == ("frame" in kind or kind == "spilled")
        theta = lda.transform(convert(frames[0]), feature_names=frames[0].columns)
        parts = theta if isinstance(theta, list) else [theta]
        theta = np.vstack([one.compute() if hasattr(one, "compute") else one for one in parts])
        np.testing.assert_array_equal(
            theta, expected.transform(frames[0], feature_names=WORDS[FIRST])
        )
    assert lda.feature_names_in_.tolist() == lda.feature_names_.tolist()
    in_order = pd.DataFrame(X[:, :24], columns=WORDS)[lda.feature_names_]
    np.testing.assert_array_equal(lda.transform(in_order), lda.transform(X, feature_names=WORDS))
    with pytest.raises(ValueError, match="feature names should match"):
        lda.transform(frames[0])


def test_documents_are_read_by_name_and_unknown_tokens_told(caplog):
    lda = stream(make(), [FIRST])
    names = lda.feature_names_.tolist()
    turned = np.column_stack([X[40:], np.full(20, 2)])[:, ::-1]
    called = [*WORDS, "unknown"][::-1]
    aligned = X[40:][:, [WORDS.tolist().index(name) for name in names]]
    n_unknown = 40 + X[40:].sum() - aligned.sum()
    for ask in (lda.transform, lda.perplexity):
        caplog.clear()
        np.testing.assert_array_equal(ask(turned, feature_names=called), ask(aligned))
        assert f"{n_unknown} of {turned.sum()} tokens" in caplog.text
    caplog.clear()
    lda.transform(aligned, feature_names=names)
    assert not caplog.text
    assert lda.transform([[3]], feature_names=["unknown"]) == pytest.approx(
        lda.transform(0 * X[:1, FIRST])
    )


def test_rare_words_leave_and_may_come_again(caplog):
    caplog.set_level(logging.INFO)
    seeds = {0: {WORDS[FIRST[0]]: 1000.0}}
    X_first = X[:20, FIRST].copy()
    X_first[:, 0] = 0  # only seeds
    lda = make(max_features=5, seed_words=seeds)
    lda.partial_fit(X_first, feature_names=WORDS[FIRST])
    order = np.argsort(-(X_first.sum(axis=0) + 1000 * (np.arange(18) == 0)), kind="stable")
    kept, left = np.sort(order[:5]), np.sort(order[5:])
    assert lda.feature_names_.tolist() == WORDS[FIRST][kept].tolist()
    assert "13 words leave the model: " + ", ".join(WORDS[FIRST][left]) in caplog.text
    assert lda.n_features_in_ == 5 == lda.seed_counts_.shape[1] == lda.components_.shape[1]
    np.testing.assert_array_equal(column_sums(lda.topic_word_counts_), X_first[:, kept].sum(axis=0))
    gone = WORDS[FIRST][left[0]]
    lda.partial_fit(np.full((3, 1), 999), feature_names=[gone])
    assert lda.feature_names_[-1] == gone and column_sums(lda.topic_word_counts_)[-1] == 2997
    assert lda.seed_counts_.sum() == 1000 and lda.n_features_in_ == 5
    lda.transform(X[:, :5])
    with pytest.raises(
        ValueError, match="X has 24 columns, more than max_features=5, which bounds"
    ):
        make(max_features=5, feature_names=WORDS).fit(X)


def test_of_equally_rare_words_the_first_stay():
    lda, numbers = make(max_features=200), np.arange(400)
    lda.partial_fit([1 + (numbers % 3 == 0)], feature_names=numbers.astype(str))
    of_one = numbers[numbers % 3 > 0][:66]
    expected = sorted([*numbers[::3], *of_one])
    assert lda.feature_names_.astype(int).tolist() == expected


SEEDS = [{0: ["word1", "word2"], 1: {"word9": 3.0}}, np.eye(3, 18), {0: [3], 2: [7, 1]}]


@pytest.mark.parametrize("number", range(3))
def test_seeds_stay_with_their_words(number):
    lda = stream(make(seed_words=SEEDS[number], half_life=2.0), [FIRST])
    seeds = dict(zip(lda.feature_names_, lda.seed_counts_.toarray().T.tolist(), strict=True))
    lda.partial_fit(X[20:40][:, LATER], feature_names=WORDS[LATER])
    for word, row in zip(lda.feature_names_, lda.seed_counts_.toarray().T.tolist(), strict=True):
        assert row == seeds.get(word, [0.0] * 3)
    with pytest.raises(ValueError, match="seed_words"):
        lda.set_params(seed_words={0: ["word1"]}).partial_fit(X, feature_names=WORDS)


def test_learned_priors_are_those_of_the_first_batch():
    lda = make(doc_topic_prior="learn", topic_word_prior="learn", max_iter=12, half_life=2.0)
    stream(lda, [FIRST])
    alpha, beta = lda.doc_topic_prior_, lda.topic_word_prior_
    lda.partial_fit(X[20:40], feature_names=WORDS)
    np.testing.assert_array_equal(lda.doc_topic_prior_, alpha)
    assert lda.topic_word_prior_ == beta != 0.01


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([*WORDS[:4], "word0"], "feature_names has several words with the name 'word0'"),
        (WORDS[:4], r"feature_names has shape \(4,\), but there are 5 words"),
        ([[1, 2]] * 5, r"feature_names has shape \(5, 2\), but there are 5 words"),
        ("abcde", "feature_names. parameter"),
        (CountVectorizer(), "CountVectorizer that has no names"),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_refused_names_leave_the_model_as_it_was(names, message, is_first):
    lda = make() if is_first else stream(make())
    before = {name: value for name, value in vars(lda).items() if name.endswith("_")}
    ways = [lda.partial_fit] + [lda.transform, lda.perplexity] * (not is_first)
    for way in ways:
        with pytest.raises(ValueError, match=message):
            way(X[:, :5], feature_names=names)
    for bad in (-X, X + 0.5, X[:0], [delayed(X), delayed(X[:, :7])]):
        with pytest.raises(ValueError):
            lda.partial_fit(bad, feature_names=WORDS)
    lda.set_callbacks(dies(2))
    with pytest.raises(KeyboardInterrupt):
        lda.partial_fit(X, feature_names=[f"new{n}" for n in range(24)])
    after = {name: value for name, value in vars(lda).items() if name.endswith("_")}
    assert after.keys() == before.keys() and all(after[name] is before[name] for name in before)


def test_names_of_other_kinds():
    years = [1999, 2001, 2000]
    lda = make(feature_names=["a", "b", "c"]).partial_fit(X[:, :3], feature_names=np.array(years))
    assert lda.feature_names_.tolist() == years  # not those of the constructor
    lda.partial_fit(X[:, :3], feature_names=[2000, "2000", ("two", "words")])
    assert lda.feature_names_.tolist() == [*years, "2000", ("two", "words")]
    with pytest.raises(ValueError, match="the model has several words with the name 'a'"):
        make(feature_names=["a", "b", "a"]).fit(X[:, :3]).partial_fit(X[:, :3], feature_names=years)
    with pytest.raises(ValueError, match="model, which have no names: begin by partial_fit with"):
        make().fit(X[:, :3]).partial_fit(X[:, :3], feature_names=years)
    frame = pd.DataFrame(X[:, :3], columns=[*"abc"])
    with pytest.raises(ValueError, match="feature_names has 'b' at place 0, where 'a' belongs"):
        make().partial_fit(frame, feature_names=[*"bac"])
    with pytest.raises(ValueError, match="has 4 features, but DistributedLDA is expecting 3"):
        make().partial_fit(X[:, :3], feature_names=[*"abc"]).partial_fit(X[:, :4])


@pytest.mark.parametrize("half_life", [None, 2.0])
def test_batches_without_tokens_or_with_new_words_alone(half_life):
    lda = stream(make(half_life=half_life), [FIRST])
    before = column_sums(lda.topic_word_counts_)
    lda.partial_fit(0 * X[:5, :2], feature_names=["x", "y"])
    left = 1.0 if half_life is None else 0.5**0.5
    np.testing.assert_allclose(column_sums(lda.topic_word_counts_), [*before * left, 0, 0])
    lda.partial_fit(X[:5, :2] + 1, feature_names=["z", "y"])
    assert column_sums(lda.topic_word_counts_)[-1] == (X[:5, 0] + 1).sum()
    assert lda.feature_names_[-3:].tolist() == ["x", "y", "z"]


@pytest.mark.parametrize("half_life", [0, -1.0, np.inf, np.nan, "2"])
def test_half_lives_are_positive_numbers(half_life):
    with pytest.raises(ValueError, match="'half_life' parameter"):
        make(half_life=half_life).fit(X)


@pytest.mark.parametrize("half_life", [None, 2.0])
@pytest.mark.parametrize("where", ["checkpoint", "spill"])
def test_a_stream_goes_on_within_a_call_and_after_it(where, half_life, tmp_path):
    options = {where: tmp_path / "run", "half_life": half_life}
    if where == "checkpoint":
        options["checkpoint_every"] = 1
    lda = stream(make(**options), [FIRST])
    kept, call = (
        pickle.dumps(lda),
        partial(DistributedLDA.partial_fit, X=X[20:40], feature_names=WORDS),
    )
    lda.set_callbacks(dies(2))
    with pytest.raises(KeyboardInterrupt):
        call(lda)
    lda = call(pickle.loads(kept))
    other = pickle.loads(kept).set_params(**{where: None})
    assert_same_bits(lda, call(other))
    assert_same_bits(call(pickle.loads(kept)), other)  # all sweeps of it are there
    lda.partial_fit(X[40:], feature_names=WORDS)  # replaces what the call before has left
    other.partial_fit(X[40:], feature_names=WORDS)
    assert_same_bits(lda, other)
    with pytest.raises(CheckpointMismatchError, match="belongs to another fit"):
        pickle.loads(kept).set_params(half_life=9.0).partial_fit(X[20:40], feature_names=WORDS)


@pytest.mark.cluster
def test_streams_on_a_cluster(client):
    expected, lda = stream(make(half_life=2.0)), make(half_life=2.0, n_shards=2)
    for n, some in enumerate((FIRST, LATER)):
        batch = da.from_array(X[20 * n : 20 * n + 20, some], chunks=(6, -1))
        lda.partial_fit(batch, feature_names=WORDS[some])
    assert_same_bits(lda, expected)


def test_topics_are_drawn_over_calls():
    pytest.importorskip("matplotlib")
    lda = stream(make(half_life=2.0))
    display = TopicDisplay.from_estimator(lda, calls=True, topics=[2, 0])
    sizes = lda.batch_topic_sizes_
    np.testing.assert_allclose(display.shares, (sizes / sizes.sum(axis=1)[:, None]).T[[2, 0]])
    [line, *_] = display.axes_[0].lines
    np.testing.assert_allclose(
        line.get_xydata(), [*zip([1, 2], 100 * display.shares[0], strict=True)]
    )
    named = TopicDisplay.from_estimator(lda, calls=True, display_labels=["May", "June"])
    assert named.group_names.tolist() == ["May", "June"]
    with pytest.raises(ValueError, match="calls=True draws shares of its own"):
        TopicDisplay.from_estimator(lda, X, [0] * 60, calls=True)
