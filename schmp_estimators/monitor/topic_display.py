"""Plots of topics: their words, and the groups of documents that they are in."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass
from datetime import date
from numbers import Integral
from textwrap import shorten
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._optional_dependencies import check_matplotlib_support
from sklearn.utils.validation import check_is_fitted

from schmp_estimators.monitor.display import last_step

#: Words of a topic in bars and in the name of a row, topics beside each other, inches of a row.
_BARS, _NAME, _COLUMNS, _ROW = 8, 4, 4, 0.29
#: Letters of a name above bars or bands, and inches of the latter.
_LETTERS, _BAND = 38, 1.6


@dataclass(eq=False, repr=False)
class TopicDisplay:
    """Plot of topics: bars of their words, or their shares in groups of documents.

    Shares without intervals are drawn as a map, with a row for each topic and a column for each
    group.  Shares with intervals are drawn as bands, or as error bars if the groups are neither
    numbers nor dates, in a separate plot for each topic.

    Use `from_estimator` to make a display.

    Parameters
    ----------
    words : array-like of shape (n_topics, n_words)
        Words of each topic, in the order of the bars.
    probabilities : array-like of shape (n_topics, n_words)
        Lengths of the bars: probabilities of the words in their topics.
    topics : array-like of shape (n_topics,)
        Numbers of the topics.
    sizes : array-like of shape (n_topics,)
        Shares of the topics in all tokens.
    shares : array-like of shape (n_topics, n_groups), default=None
        Shares of the topics in each group.  If None, bars of words are drawn.
    group_names : array-like of shape (n_groups,), default=None
        Names of the groups, which may be numbers or dates.
    names : array-like of shape (n_topics,), default=None
        Names of the topics.  If None, topics are named by their words.
    lower, upper : array-like of shape (n_topics, n_groups), default=None
        Ends of the intervals of `shares`.
    refits : array-like of shape (n_fits, n_topics, n_groups), default=None
        Shares in other fits, drawn in grey with the bands.
    n_empty : int, default=0
        Number of documents without words, given in the label of a map or of bands.

    Attributes
    ----------
    figure_ : matplotlib Figure
    axes_ : ndarray of matplotlib Axes
        One for each topic with bars or bands, or one for the map.
    ax_ : matplotlib Axes
        The first of `axes_`.
    bars_ : list of matplotlib BarContainer
        One for each topic; empty unless bars are drawn.
    image_ : matplotlib AxesImage or None
        The map, if it is drawn.
    bands_ : list of matplotlib PolyCollection or ErrorbarContainer
        One for each topic; empty unless bands are drawn.
    text_ : list of matplotlib Text
        Shares of at least 5 percent, which are written into the map.

    See Also
    --------
    DistributedLDA.top_words : The words of topics.
    DistributedLDA.topic_shares : Shares of topics with intervals, for bands.
    ConvergenceDisplay : Plot of the objective during a fit.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators import DistributedLDA, TopicDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = rng.poisson(np.kron(np.eye(2), np.ones((50, 5))))  # five words each of two topics
    >>> lda = DistributedLDA(2, max_iter=30, random_state=0).fit(X)
    >>> display = TopicDisplay.from_estimator(lda, n_words=5)
    >>> len(display.axes_)
    2
    >>> display = TopicDisplay.from_estimator(lda, X, ["one"] * 50 + ["two"] * 50)
    >>> display.shares.shape
    (2, 2)
    >>> found = lda.topic_shares(X, [2024] * 50 + [2025] * 50, random_state=0)
    >>> display = TopicDisplay.from_estimator(lda, shares=found)
    >>> len(display.bands_)
    2
    >>> # Two calls: the fit is the first.
    >>> display = TopicDisplay.from_estimator(lda.partial_fit(X), calls=True)
    >>> display.shares.shape
    (2, 2)
    """

    words: Any
    probabilities: Any
    _: KW_ONLY
    topics: Any
    sizes: Any
    shares: Any = None
    group_names: Any = None
    names: Any = None
    lower: Any = None
    upper: Any = None
    refits: Any = None
    n_empty: int = 0

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        groups: Any = None,
        *,
        shares: Any = None,
        calls: bool = False,
        topics: Any = 12,
        n_words: int | None = None,
        by: str = "relevance",
        relevance: float = 0.6,
        feature_names: Any = None,
        display_labels: Any = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> TopicDisplay:
        """Plot the topics of a fitted model.

        Parameters
        ----------
        estimator : DistributedLDA, or a Pipeline that ends with one
            Fitted model.
        X : input of the estimator's `transform`, default=None
            Documents, for a map of topics and groups.  A Dask collection is transformed on the
            workers.
        groups : array-like of shape (n_documents,), default=None
            The group of each document, as `by` in `DistributedLDA.topic_shares`.  Documents without
            words, and those whose group is missing, are left out.
        shares : TopicShares, default=None
            Result of `DistributedLDA.topic_shares`, with intervals.  The intervals are drawn as a
            band for each topic if the names of the groups (see `display_labels`) are numbers or
            dates, and otherwise as error bars.
        calls : bool, default=False
            Whether to draw how the topics change over the calls of `partial_fit`.  A line for each
            topic (or points, if `display_labels` are strings) shows its share in the tokens of each
            call.
        topics : int or array-like of int, default=12
            How many topics to draw, or an array of topic numbers in the order wanted.  If you say
            how many, the largest topics are drawn.  In a map, these are sorted by the group in
            which their share is largest.
        n_words : int, default=None
            Number of words of each topic.  None means 8 in bars, and 4 in the names of topics to
            which no name was assigned.
        by, relevance : str, float
            Choice of the words, as in `DistributedLDA.top_words`.  The length of a bar is the
            probability of the word, and the longest bar is on top.
        feature_names : array-like of shape (n_features,), default=None
            Names of the words.  If None, they come from the earlier steps of a pipeline, or else
            from the model.
        display_labels : array-like of shape (n_groups,), default=None
            Names of the groups, in the sorted order of the groups.  With `calls`, names of the
            calls, for example their dates.  If None, groups are named by their values, and calls by
            numbers from 1 on.
        ax : matplotlib Axes or array-like of Axes, default=None
            Where to draw.  For bars and bands, pass one Axes for each topic, or a single Axes,
            which is then divided.  If None, a new figure is made.
        **kwargs : dict
            Passed to ``Axes.barh`` for bars, to ``Axes.imshow`` for a map, and to ``Axes.plot`` or
            ``Axes.errorbar`` for bands.

        Returns
        -------
        TopicDisplay

        Raises
        ------
        TypeError
            If the estimator has no topics.
        ValueError
            If only one of `X` and `groups` is given, or more than one of `X`, `shares` and `calls`.
            If `display_labels` is given without `groups`, `shares` or `calls`.  If the lengths of
            `X` and `groups` differ, or groups cannot be sorted.  If the number of `display_labels`
            differs from that of groups or calls.  If `shares` has no intervals, or not as many
            topics as the model.  If `topics` is invalid.
        """
        check_matplotlib_support(f"{cls.__name__}.from_estimator")
        check_is_fitted(estimator)
        model, names = _topics_of(estimator, feature_names)
        if groups is None and shares is None and not calls and display_labels is not None:
            raise ValueError("display_labels are names of groups, but groups is None; give both")
        if (X is None) != (groups is None):
            raise ValueError(
                "a map needs X, the documents, and groups, the group of each; give both, or none "
                "for bars"
            )
        sizes = model.topic_sizes_
        if shares is not None and (
            X is not None or shares.lower is None or len(shares.topic_names) != len(sizes)
        ):
            raise ValueError(
                "shares are drawn as bands: give what topic_shares of this model returns with "
                "n_draws above 0, and no X and groups"
            )
        if calls and (X is not None or shares is not None):
            raise ValueError("calls=True draws shares of its own; leave X, groups and shares out")
        if calls:
            found = _over_calls(model)
        else:
            found = shares if X is None else _by_group(estimator, model, X, groups)
        numbers = _choose(topics, sizes, None if X is None else found.share.T)
        if n_words is None:
            n_words = _BARS if found is None else _NAME
        words, probabilities = model.top_words(
            n_words,
            by,
            relevance=relevance,
            feature_names=names,
            return_probability=True,
        )
        called = model._named(words[:, :_NAME] if found is None else words)
        order = np.argsort(-probabilities, axis=1, kind="stable")
        of_groups = {} if found is None else _of_groups(found, numbers, display_labels)
        return cls(
            np.take_along_axis(words, order, 1)[numbers],
            np.take_along_axis(probabilities, order, 1)[numbers],
            topics=numbers,
            sizes=sizes[numbers] / max(sizes.sum(), 1),
            names=called[numbers],
            **of_groups,
        ).plot(ax=ax, **kwargs)

    def plot(self, *, ax: Any = None, **kwargs: Any) -> TopicDisplay:
        """Draw bars of words, or shares as a map or as bands.

        Parameters
        ----------
        ax : matplotlib Axes or array-like of Axes, default=None
            As in `from_estimator`.
        **kwargs : dict
            As in `from_estimator`.

        Returns
        -------
        TopicDisplay
            This object.

        Raises
        ------
        ValueError
            If there are fewer Axes than topics.  If a single Axes must be divided, but belongs to
            no grid.  If `group_names` is given without `shares`.
        """
        check_matplotlib_support(f"{type(self).__name__}.plot")
        if self.shares is None and self.group_names is not None:
            raise ValueError(
                "group_names are names of columns of shares, but shares is None; give both"
            )
        self.bars_: list[Any] = []
        self.image_: Any = None
        self.text_: list[Any] = []
        self.bands_: list[Any] = []
        if self.shares is None:
            self._draw_bars(ax, kwargs)
        elif self.lower is None:
            self._draw_map(ax, kwargs)
        else:
            self._draw_bands(ax, kwargs)
        self.ax_ = self.axes_[0]
        self.figure_ = self.ax_.figure
        return self

    def _draw_bars(self, ax: Any, kwargs: dict[str, Any]) -> None:
        words = np.asarray(self.words)
        probabilities = np.asarray(self.probabilities, float)
        self.axes_ = _axes(ax, len(words), (words.shape[1] + 4) * 0.17)
        longest = probabilities.max(initial=0.0) * 1.05
        for axes, title, names, row in zip(
            self.axes_, self._titles(), words, probabilities, strict=True
        ):
            self.bars_.append(axes.barh(range(len(row)), row, **{"height": 0.75, **kwargs}))
            axes.set_yticks(
                range(len(row)), list(map(str, names)), fontsize="small", parse_math=False
            )
            axes.tick_params(axis="x", labelsize="small")
            axes.tick_params(axis="y", length=0)
            axes.locator_params(axis="x", nbins=3)
            axes.set(xlim=(0, longest), ylim=(len(row) - 0.4, -0.6))  # the first word on top
            axes.grid(visible=False, axis="y")
            axes.set_title(title, fontsize="small", parse_math=False)
            if ax is not None:
                axes.set_xlabel("Probability", fontsize="small")
        if ax is None:
            self.axes_[0].figure.supxlabel(
                "Probability of the word in the topic", fontsize="medium"
            )

    def _draw_map(self, ax: Any, kwargs: dict[str, Any]) -> None:
        import matplotlib.pyplot as plt  # noqa: PLC0415  (an optional extra)

        percent = 100 * np.asarray(self.shares, float)
        n_topics, n_groups = percent.shape
        if ax is None:
            _, ax = plt.subplots(
                figsize=(4.5 + 0.55 * n_groups, 1.6 + _ROW * n_topics), layout="constrained"
            )
        self.axes_ = _axes(ax, 1, 0.0)
        [ax] = self.axes_
        self.image_ = ax.imshow(
            percent, **{"cmap": "YlGnBu", "aspect": "auto", "vmin": 0, **kwargs}
        )
        ax.set_yticks(range(n_topics), self._called(), parse_math=False)
        ax.set_xticks(range(n_groups), list(map(str, self.group_names)), parse_math=False)
        ax.tick_params(length=0, top=True, bottom=False, labeltop=True, labelbottom=False)
        plt.setp(ax.get_xticklabels(), rotation=40, ha="left", rotation_mode="anchor")
        ax.grid(visible=False)
        for (row, column), value in np.ndenumerate(percent):
            if value >= 5:
                red, green, blue, _ = self.image_.cmap(self.image_.norm(value))
                colour = "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else "white"
                self.text_.append(
                    ax.text(column, row, f"{value:.0f}", ha="center", va="center", color=colour)
                )
        ax.figure.colorbar(
            self.image_, label=f"Mean share of the topic in documents, percent{self._left_out()}"
        )

    def _draw_bands(self, ax: Any, kwargs: dict[str, Any]) -> None:
        at = np.asarray(self.group_names)
        is_line = at.dtype.kind in "iufM" or all(isinstance(one, date) for one in at)
        at = at if is_line else np.array([*map(str, at)])
        self.axes_ = _axes(ax, len(self.topics), _BAND)
        others = np.zeros((0, *np.shape(self.shares))) if self.refits is None else self.refits
        for k, (axes, title) in enumerate(zip(self.axes_, self._titles(), strict=True)):
            share, lower, upper = (100 * one[k] for one in (self.shares, self.lower, self.upper))
            if is_line:
                [line] = axes.plot(at, share, **{"marker": ".", **kwargs})
                colour = line.get_color()
                self.bands_.append(axes.fill_between(at, lower, upper, alpha=0.3, color=colour))
            else:
                ends = np.maximum([share - lower, upper - share], 0.0)
                self.bands_.append(axes.errorbar(at, share, ends, **{"fmt": "o", **kwargs}))
            axes.plot(at, 100 * others[:, k].T, "-" if is_line else "_", color="grey", lw=0.6)
            axes.set_ylim(bottom=0)
            axes.tick_params(labelsize="small")
            axes.tick_params(axis="x", rotation=40)
            axes.set_title(title, fontsize="small", parse_math=False)
        self.axes_[0].figure.supylabel(
            f"Share of the topic, percent{self._left_out()}", fontsize="medium"
        )

    def _called(self) -> list[str]:
        """Return the names of the topics."""
        words = [", ".join(map(str, row)) for row in np.asarray(self.words)]
        return words if self.names is None else [*map(str, self.names)]

    def _titles(self) -> list[str]:
        return [
            f"{shorten(name, _LETTERS, placeholder=' …')}\nTopic {topic}: {size:.1%} of tokens"
            for name, topic, size in zip(self._called(), self.topics, self.sizes, strict=True)
        ]

    def _left_out(self) -> str:
        return f"\n(documents without words, left out: {self.n_empty})" if self.n_empty else ""


def _topics_of(estimator: Any, feature_names: Any) -> tuple[Any, Any]:
    """Return the model that has topics, and the names of its words as far as they are known."""
    model, names = last_step(estimator, feature_names)
    if not hasattr(model, "top_words"):
        raise TypeError(
            f"{type(model).__name__} has no topics; give a DistributedLDA, or a Pipeline that ends "
            "with one"
        )
    return model, names


def _by_group(estimator: Any, model: Any, X: Any, groups: Any) -> Any:
    """Return the `TopicShares` of documents, without intervals."""
    steps = getattr(estimator, "steps", ())
    try:
        counts = estimator[:-1].transform(X) if len(steps) > 1 else X
        return model.topic_shares(counts, groups, n_draws=0)
    except ValueError as error:
        raise ValueError(re.sub("^by ", "groups ", str(error))) from error


def _over_calls(model: Any) -> SimpleNamespace:
    """Return the shares of topics in the tokens of each call, as fields of `TopicShares`.

    They are no estimates.
    """
    sizes = model.batch_topic_sizes_
    share = sizes / np.maximum(sizes.sum(axis=1, keepdims=True), 1)
    ends = {"lower": share, "upper": share, "refits": None}
    return SimpleNamespace(groups=np.arange(1, len(sizes) + 1), share=share, n_empty=0, **ends)


def _of_groups(found: Any, numbers: NDArray[np.int64], labels: Any) -> dict[str, Any]:
    """Return fields of a display from `TopicShares`, for some topics.

    `labels` are names of the groups.
    """
    if labels is not None and len(labels) != len(found.groups):
        raise ValueError(
            f"display_labels has {len(labels)} names, but there are {len(found.groups)} groups: "
            f"{found.groups[:9].tolist()}; give one name for each, in this order"
        )
    fields = {
        "shares": found.share,
        "lower": found.lower,
        "upper": found.upper,
        "refits": found.refits,
    }
    return {
        "group_names": found.groups if labels is None else np.asarray(labels),
        "n_empty": found.n_empty,
        **{
            name: None if one is None else np.moveaxis(one[..., numbers], -1, -2)
            for name, one in fields.items()
        },
    }


def _choose(
    topics: Any, sizes: NDArray[np.int64], shares: NDArray[np.float64] | None
) -> NDArray[np.int64]:
    """Return the numbers of the topics to draw."""
    if np.ndim(topics) == 0:
        if not isinstance(topics, Integral) or topics < 1:
            raise ValueError(
                f"topics={topics!r}; it must be how many, at least 1, or the numbers of topics"
            )
        largest = np.argsort(-sizes, kind="stable")[: int(topics)]
        if shares is None:
            return largest
        found = shares[largest]
        return largest[np.lexsort((-found.max(axis=1), found.argmax(axis=1)))]
    numbers = np.asarray(topics)
    if numbers.ndim != 1 or not numbers.size or numbers.dtype.kind not in "iu":
        raise ValueError(
            f"topics={topics!r}; it must be how many, at least 1, or the numbers of topics"
        )
    if numbers.min() < 0 or numbers.max() >= len(sizes):
        raise ValueError(f"topics={topics!r}; the model has topics 0 to {len(sizes) - 1}")
    return numbers


def _axes(ax: Any, n_topics: int, height: float) -> NDArray[Any]:
    """Return Axes for so many topics.

    They are those given, parts of the one given, or those of a new figure.
    """
    import matplotlib.pyplot as plt  # noqa: PLC0415  (an optional extra)

    n_columns = min(_COLUMNS, n_topics)
    n_rows = -(-n_topics // n_columns)
    if ax is None:
        figure = plt.figure(figsize=(2.6 * n_columns, height * n_rows + 0.4), layout="constrained")
        grid = figure.add_gridspec(n_rows, n_columns)
    elif np.ndim(ax):
        given = np.ravel(ax)
        if len(given) < n_topics:
            raise ValueError(
                f"ax has {len(given)} Axes, but there are {n_topics} topics; give one for each"
            )
        return given[:n_topics]
    elif n_topics == 1:
        return np.array([ax])
    else:
        figure = ax.figure
        if ax.get_subplotspec() is None:
            raise ValueError(
                f"ax is in no grid and cannot be divided; give {n_topics} Axes, or one of "
                "plt.subplots()"
            )
        grid = ax.get_subplotspec().subgridspec(n_rows, n_columns)
        ax.set_axis_off()
    return np.array(
        [figure.add_subplot(grid[at // n_columns, at % n_columns]) for at in range(n_topics)]
    )
