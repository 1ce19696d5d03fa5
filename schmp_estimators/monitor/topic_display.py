"""Plots of topics: their words, and the groups of documents that they are in."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._optional_dependencies import check_matplotlib_support
from sklearn.utils.validation import check_is_fitted

from schmp_estimators.monitor.display import last_step

#: Words of a topic in bars and in the name of a row, topics beside each other, inches of a row.
_BARS, _NAME, _COLUMNS, _ROW = 8, 4, 4, 0.29


@dataclass(eq=False, repr=False)
class TopicDisplay:
    """Topics as bars of their words, or as a map of how much each group of documents is about each topic.

    Use `from_estimator` to make one.

    Parameters
    ----------
    words : array-like of shape (n_topics, n_words)
        Words of each topic, the best word first.
    probabilities : array-like of shape (n_topics, n_words)
        Probabilities of the words in their topics: the lengths of the bars.
    topics : array-like of shape (n_topics,)
        Numbers of the topics.
    sizes : array-like of shape (n_topics,)
        Shares of the topics in all tokens.
    shares : array-like of shape (n_topics, n_groups), default=None
        Mean proportions of the topics in the documents of each group.  None: bars are drawn.
    group_names : array-like of shape (n_groups,), default=None
        Names of the groups.

    Attributes
    ----------
    figure_ : matplotlib Figure
    axes_ : ndarray of matplotlib Axes
        One for each topic, or one for the map.
    ax_ : matplotlib Axes
        The first of them.
    bars_ : list of matplotlib BarContainer
        One for each topic; empty if a map is drawn.
    image_ : matplotlib AxesImage or None
        The map.
    text_ : list of matplotlib Text
        Shares that are written into the map, from 5 percent on.

    See Also
    --------
    DistributedLDA.top_words : The words of topics.
    ConvergenceDisplay : How a fit went.

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
    """

    words: Any
    probabilities: Any
    _: KW_ONLY
    topics: Any
    sizes: Any
    shares: Any = None
    group_names: Any = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        groups: Any = None,
        *,
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
            Fitted.
        X : input of the estimator's `transform`, default=None
            Documents, for a map of topics and groups.  A Dask collection is transformed on the workers; the proportions
            come to this process.
        groups : array-like of shape (n_documents,), default=None
            The group of each document: numbers or names.
        topics : int or array-like of int, default=12
            Number of topics, of which the largest are drawn; or the numbers of the topics, in their order.  A map with
            a number of topics starts with those that are largest in the first group.
        n_words : int, default=None
            Number of words of each topic.  None: 8 in bars, 4 in a map.
        by, relevance : str, float
            Choice and order of the words, as in `DistributedLDA.top_words`.  The length of a bar is always the
            probability of the word.
        feature_names : array-like of shape (n_features,), default=None
            Names of the words.  None: names known to the estimator or to the steps before it in the pipeline.
        display_labels : array-like of shape (n_groups,), default=None
            Names of the groups, in the order of the sorted values in `groups`.  None: these values.
        ax : matplotlib Axes or array-like of Axes, default=None
            Where to draw.  Bars need one Axes for each topic, or a single one that is divided.  None: a new figure.
        **kwargs : dict
            Passed to ``Axes.barh`` or, for a map, ``Axes.imshow``.

        Returns
        -------
        TopicDisplay

        Raises
        ------
        TypeError
            If the estimator has no topics.
        ValueError
            If only one of `X` and `groups` is given, or `display_labels` without them; if their lengths differ; if
            groups cannot be sorted; if the number of names differs from the number of groups; if there is no such
            topic.
        """
        check_matplotlib_support(f"{cls.__name__}.from_estimator")
        check_is_fitted(estimator)
        model, names = _topics_of(estimator, feature_names)
        if groups is None and display_labels is not None:
            raise ValueError("display_labels are names of groups, but groups is None; give both")
        if (X is None) != (groups is None):
            raise ValueError(
                "a map needs X, the documents, and groups, the group of each; give both, or none for bars"
            )
        shares, group_names = (
            (None, None) if X is None else _by_group(estimator.transform(X), groups, display_labels)
        )
        total = model.topic_sizes_.sum()
        numbers = _choose(topics, model.topic_sizes_, shares)
        if n_words is None:
            n_words = _BARS if X is None else _NAME
        words, probabilities = model.top_words(
            n_words, by, relevance=relevance, feature_names=names, return_probability=True
        )
        return cls(
            words[numbers],
            probabilities[numbers],
            topics=numbers,
            sizes=model.topic_sizes_[numbers] / max(total, 1),
            shares=None if shares is None else shares[numbers],
            group_names=group_names,
        ).plot(ax=ax, **kwargs)

    def plot(self, *, ax: Any = None, **kwargs: Any) -> TopicDisplay:
        """Draw the bars, or the map.

        Parameters
        ----------
        ax : matplotlib Axes or array-like of Axes, default=None
            As in `from_estimator`.
        **kwargs : dict
            Passed to ``Axes.barh`` or ``Axes.imshow``.

        Returns
        -------
        TopicDisplay
            This object.

        Raises
        ------
        ValueError
            If there are fewer Axes than topics, or one that cannot be divided; if there are names of groups, but no
            shares.
        """
        check_matplotlib_support(f"{type(self).__name__}.plot")
        if self.shares is None and self.group_names is not None:
            raise ValueError(
                "group_names are names of columns of shares, but shares is None; give both"
            )
        self.bars_: list[Any] = []
        self.image_: Any = None
        self.text_: list[Any] = []
        if self.shares is None:
            self._draw_bars(ax, kwargs)
        else:
            self._draw_map(ax, kwargs)
        self.ax_ = self.axes_[0]
        self.figure_ = self.ax_.figure
        return self

    def _draw_bars(self, ax: Any, kwargs: dict[str, Any]) -> None:
        words = np.asarray(self.words)
        probabilities = np.asarray(self.probabilities, float)
        self.axes_ = _axes(ax, len(words), (words.shape[1] + 3) * 0.17)
        longest = probabilities.max(initial=0.0) * 1.05
        for axes, topic, size, names, row in zip(
            self.axes_, self.topics, self.sizes, words, probabilities, strict=True
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
            axes.set_title(f"Topic {topic}: {size:.1%} of tokens", fontsize="small")
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
        names = [", ".join(map(str, row)) for row in np.asarray(self.words)]
        ax.set_yticks(range(n_topics), names, parse_math=False)
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
        ax.figure.colorbar(self.image_, label="Mean share of the topic in documents, percent")


def _topics_of(estimator: Any, feature_names: Any) -> tuple[Any, Any]:
    """Return the model that has topics, and the names of its words, as far as anybody knows them."""
    model, names = last_step(estimator, feature_names)
    if not hasattr(model, "top_words"):
        raise TypeError(
            f"{type(model).__name__} has no topics; give a DistributedLDA, or a Pipeline that ends with one"
        )
    return model, names


def _by_group(
    proportions: Any, groups: Any, labels: Any
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return the mean proportion of each topic in each group, shape (n_topics, n_groups), and the groups' names."""
    if isinstance(proportions, list):  # of chunks
        import dask  # noqa: PLC0415  (it takes long, and is there already)

        proportions = np.concatenate(dask.compute(*proportions))
    elif hasattr(proportions, "compute"):  # on Dask
        proportions = proportions.compute()
    if isinstance(groups, np.ma.MaskedArray) and np.ma.is_masked(groups):
        raise ValueError(
            "groups has masked entries; leave these documents out, or give them a group of their own"
        )
    theta = np.asarray(proportions)
    groups = np.asarray(groups)
    if groups.shape != theta.shape[:1]:
        raise ValueError(
            f"groups has shape {groups.shape}, but X has {len(theta)} documents; give one group for each"
        )
    try:
        names, group = np.unique(groups, return_inverse=True)
    except TypeError as error:
        raise ValueError(
            "groups mixes what cannot be sorted, such as None with names; give numbers alone, or strings alone"
        ) from error
    if labels is not None:
        if len(labels) != len(names):
            raise ValueError(
                f"display_labels has {len(labels)} names, but there are {len(names)} groups: {names[:9].tolist()}; "
                "give one name for each, in this order"
            )
        names = np.asarray(labels)
    return np.column_stack([theta[group == one].mean(axis=0) for one in range(len(names))]), names


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
    """Return Axes for so many topics: those given, parts of the one given, or those of a new figure."""
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
                f"ax is in no grid and cannot be divided; give {n_topics} Axes, or one of plt.subplots()"
            )
        grid = ax.get_subplotspec().subgridspec(n_rows, n_columns)
        ax.set_axis_off()
    return np.array(
        [figure.add_subplot(grid[at // n_columns, at % n_columns]) for at in range(n_topics)]
    )
