"""Pictures of topics: bars of their words, and maps of groups of documents."""

from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pytest
from corpora import NAMES, SMALL
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

from schmp_estimators import DistributedLDA, TopicDisplay

#: Of each document, out of order.
GROUPS = np.array(["b", "a", "c"])[np.arange(23) % 3]


make = partial(DistributedLDA, n_components=3, max_iter=4, random_state=7)


@pytest.fixture(scope="module")
def fitted():
    return make().fit(SMALL)


def labels(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


def test_bars_are_words_of_the_largest_topics(fitted):
    display = TopicDisplay.from_estimator(
        fitted, topics=2, n_words=4, by="probability", feature_names=NAMES
    )
    order = np.argsort(-fitted.topic_sizes_)[:2]
    words, probabilities = fitted.top_words(
        4, "probability", feature_names=NAMES, return_probability=True
    )
    assert len(display.axes_) == len(display.bars_) == 2 and display.image_ is None
    for axes, bars, topic in zip(display.axes_, display.bars_, order, strict=True):
        assert labels(axes.yaxis) == words[topic].tolist()
        np.testing.assert_array_equal([bar.get_width() for bar in bars], probabilities[topic])
        assert axes.yaxis_inverted()  # the first word is on top
        assert (
            axes.get_title() == f"{', '.join(words[topic])}\n"
            f"Topic {topic}: {fitted.topic_sizes_[topic] / SMALL.sum():.1%} of tokens"
        )
        assert axes.get_xlim()[1] >= probabilities[order].max()
    assert display.figure_ is display.axes_[0].figure


def test_a_map_has_mean_shares_of_groups(fitted):
    display = TopicDisplay.from_estimator(
        fitted, SMALL, GROUPS, topics=[1, 2, 0], display_labels=["A", "B", "C"]
    )
    theta = fitted.transform(SMALL)
    expected = [[theta[group == GROUPS, topic].mean() for group in "abc"] for topic in (1, 2, 0)]
    np.testing.assert_allclose(display.image_.get_array(), 100 * np.array(expected))
    [ax] = display.axes_
    assert display.ax_ is ax
    assert labels(ax.xaxis) == ["A", "B", "C"]
    assert labels(ax.yaxis) == [", ".join(map(str, row)) for row in fitted.top_words(4)[[1, 2, 0]]]
    shown = [round(100 * value) for value in np.ravel(expected) if value >= 0.05]
    assert sorted(int(text.get_text()) for text in display.text_) == sorted(shown)
    assert display.bars_ == [] and display.figure_ is ax.figure


def test_a_pipeline_knows_its_words():
    text = ["cats purr", "dogs bark", "cats sleep", "dogs bark at cats"]
    model = make_pipeline(CountVectorizer(), make(n_components=2)).fit(text)
    bars = TopicDisplay.from_estimator(model, n_words=6)
    assert {*bars.words.ravel()} == {"at", "bark", "cats", "dogs", "purr", "sleep"}
    assert TopicDisplay.from_estimator(model, text, [0, 1, 0, 1]).shares.shape == (2, 2)


MAP = {"X": SMALL, "groups": GROUPS}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"X": SMALL}, "a map needs X, the documents, and groups, the group of each; give both"),
        (
            {"groups": GROUPS},
            "a map needs X, the documents, and groups, the group of each; give both",
        ),
        (
            MAP | {"groups": GROUPS[:5]},
            r"groups has shape \(5,\), but X has 23 documents; give one label for each",
        ),
        (MAP | {"groups": [1, *GROUPS[1:].tolist()]}, "groups mixes what cannot be sorted"),
        (MAP | {"shares": 1}, "shares are drawn as bands: .* n_draws above 0, and no X and groups"),
        (
            {"shares": make(n_components=2).fit(SMALL).topic_shares(SMALL, random_state=0)},
            "shares are drawn as bands: give what topic_shares of this model returns",
        ),
        (
            MAP | {"display_labels": ["x"]},
            r"display_labels has 1 names, but there are 3 groups: \['a', 'b', 'c'\]",
        ),
        *(
            ({"topics": one}, "topics=.*; it must be how many, at least 1, or the numbers")
            for one in (0, 1.5, "all", [])
        ),
        *(({"topics": one}, "topics=.*; the model has topics 0 to 2") for one in ([0, 3], [-1])),
        ({"n_words": 0}, "'n_words' .* Got 0 instead"),
        ({"by": "lift"}, "'by' .* Got 'lift' instead"),
    ],
)
def test_errors_of_the_picture(fitted, parameters, message):
    with pytest.raises(ValueError, match=message):
        TopicDisplay.from_estimator(fitted, **parameters)
    assert plt.get_fignums() == []


def test_what_has_no_topics_or_no_room_for_them(fitted):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        TopicDisplay.from_estimator(make())
    with pytest.raises(
        TypeError, match="LatentDirichletAllocation has no topics; give a DistributedLDA"
    ):
        TopicDisplay.from_estimator(LatentDirichletAllocation(2, random_state=0).fit(SMALL))
    with pytest.raises(ValueError, match="ax is in no grid and cannot be divided; give 3 Axes"):
        TopicDisplay.from_estimator(fitted, ax=plt.figure().add_axes([0, 0, 1, 1]))


def test_names_are_no_formulas(fitted):
    names = ["$x^{$", "a_b", "$5", *NAMES[3:]]
    display = TopicDisplay.from_estimator(fitted, n_words=11, feature_names=names)
    display.figure_.canvas.draw()
    assert set(labels(display.ax_.yaxis)) == set(names)
    groups = np.array(["$a^$", "$b"])[np.arange(23) % 2]
    display = TopicDisplay.from_estimator(fitted, SMALL, groups, feature_names=names)
    display.figure_.canvas.draw()
    assert labels(display.ax_.xaxis) == ["$a^$", "$b"]


def test_bars_become_shorter_from_the_top(fitted):
    display = TopicDisplay.from_estimator(fitted, relevance=0.1)
    for row, bars in zip(display.probabilities, display.bars_, strict=True):
        np.testing.assert_array_equal(row, np.sort(row)[::-1])
        np.testing.assert_array_equal([bar.get_width() for bar in bars], row)
    found = {tuple(sorted(row)) for row in display.words.tolist()}
    assert found == {tuple(sorted(row)) for row in fitted.top_words(8, relevance=0.1).tolist()}


def test_names_of_topics_are_in_every_picture():
    lda = make().fit(SMALL)
    lda.topic_names_ = ["first", "$second$", "third"]
    bars = TopicDisplay.from_estimator(lda)
    titles = [ax.get_title().partition("\n")[0] for ax in bars.axes_]
    assert titles == lda.topic_names_[bars.topics].tolist()
    picture = TopicDisplay.from_estimator(lda, SMALL, GROUPS, topics=[2, 0])
    assert labels(picture.ax_.yaxis) == ["third", "first"]
    shares = lda.topic_shares(SMALL, GROUPS, n_draws=40, random_state=0)
    bands = TopicDisplay.from_estimator(lda, shares=shares, topics=[1])
    assert bands.ax_.get_title().startswith("$second$")
    bands.figure_.canvas.draw()


@pytest.mark.parametrize("groups", [2000 + np.arange(23) // 6, GROUPS], ids=["years", "names"])
def test_bands_are_intervals(fitted, groups):
    X = np.vstack([0 * SMALL[:1], SMALL])
    found = fitted.topic_shares(X, ["zero", *groups] if groups is GROUPS else [2000, *groups],
                                n_draws=40, n_fits=2, random_state=0)  # fmt: skip
    display = TopicDisplay.from_estimator(fitted, shares=found, topics=[2, 0])
    display.figure_.canvas.draw()
    assert "documents without words, left out: 1" in display.figure_.get_supylabel()
    for ax, band, topic in zip(display.axes_, display.bands_, [2, 0], strict=True):
        assert ax.lines and len(display.axes_) == 2 and display.image_ is None
        if groups is GROUPS:
            ends = np.array(band.lines[2][0].get_segments()[:3])
            assert labels(ax.xaxis) == ["a", "b", "c", "zero"]
            np.testing.assert_allclose(
                ends[:, :, 1], 100 * np.transpose([found.lower[:3, topic], found.upper[:3, topic]])
            )
        else:
            x0, y0, x1, y1 = band.get_datalim(ax.transData).extents
            assert (x0, x1) == (2000, 2003)
            np.testing.assert_allclose(
                [y0, y1], [100 * found.lower[:, topic].min(), 100 * found.upper[:, topic].max()]
            )


def test_missing_groups_and_empty_documents_do_not_count(fitted):
    X = np.vstack([0 * SMALL[:2], SMALL])
    groups = ["a", None, None, *GROUPS[1:]]
    display = TopicDisplay.from_estimator(fitted, X, groups, topics=[0, 1, 2])
    theta = fitted.transform(SMALL[1:])
    expected = np.transpose([theta[GROUPS[1:] == group].mean(axis=0) for group in "abc"])
    np.testing.assert_allclose(display.shares, expected)
    assert "(documents without words, left out: 2)" in display.image_.colorbar.ax.get_ylabel()
