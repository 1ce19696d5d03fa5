"""Shares of topics in groups of documents, with intervals from draws given the topics."""

import math
from datetime import UTC, date
from functools import partial
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from schmp_estimators.core.inputs.masks import unmask
from schmp_estimators.core.inputs.validation import SHARE, is_dask, is_missing
from schmp_estimators.core.later import Later
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.typing import Array, Floats, Integers, Named
from schmp_estimators.core.values import offsets_of
from schmp_estimators.lda.data.corpus import Corpus
from schmp_estimators.lda.diagnose import TopicsOfDocuments
from schmp_estimators.lda.matching import MatchedTopics
from schmp_estimators.lda.programs.foldin import proportions_of, share_totals
from schmp_estimators.lda.use import check_room

dask: Any = Later("dask")

_WHOLE = [Interval(Integral, 0, None, closed="left")]
_SHARES: Named = {
    "n_draws": _WHOLE,
    "confidence_level": [SHARE],
    "weighted_by": [StrOptions({"documents", "tokens"})],
    "n_fits": _WHOLE,
    "random_state": ["random_state"],
}


class TopicShares(NamedTuple):
    """Shares of topics in groups of documents, as `DistributedLDA.topic_shares` returns them.

    Parameters
    ----------
    groups : ndarray of shape (n_groups,)
        Sorted labels of the groups.
    topic_names : ndarray of shape (n_components,), dtype object
        Names of the topics.
    share : ndarray of shape (n_groups, n_components)
        Mean share of each topic in each group.  Each row sums to 1.  A group without words has NaN.
    lower, upper : ndarray of shape (n_groups, n_components), or None
        Ends of the intervals of `share`.  None if `n_draws` was 0.
    trend : ndarray of shape (n_components,), or None
        Slope of a line through the shares of the groups.  It is the change of the share per unit if
        groups are numbers, per year if they are dates or periods, and per step if they are an
        ordered categorical.  The line is fitted by least squares, with the sizes of the groups
        (documents or tokens) as weights.  The trend is None if groups are names or an unordered
        categorical, or if fewer than two groups have words.
    trend_lower, trend_upper : ndarray of shape (n_components,), or None
        Ends of the intervals of `trend`.
    refits : ndarray of shape (n_fits, n_groups, n_components), or None
        Shares of the matching topics in fits with other seeds.  None if `n_fits` was 0.
    n_documents, n_tokens : ndarray of shape (n_groups,)
        Number of documents with words in each group, and number of their tokens.
    n_empty : int
        Number of documents without words, which are left out.
    n_unlabelled : int
        Number of documents with words but without a label, which are left out.
    """

    groups: Array
    topic_names: Array
    share: Floats
    lower: Floats | None
    upper: Floats | None
    trend: Floats | None
    trend_lower: Floats | None
    trend_upper: Floats | None
    refits: Floats | None
    n_documents: Integers
    n_tokens: Integers
    n_empty: int
    n_unlabelled: int

    def table(self) -> dict[str, Array]:
        """Return a table with a row for each group and topic, for ``pandas.DataFrame``.

        Returns
        -------
        dict of str to ndarray of shape (n_groups * n_components,)
            The columns are "group", "topic", "name", "share", "n_documents" and "n_tokens".  With
            intervals, there are also "lower" and "upper".  With `refits`, there are also
            "refits_min" and "refits_max", the smallest and the largest share in these fits.
        """
        n_groups, n_topics = self.share.shape
        columns = {
            "group": np.repeat(self.groups, n_topics),
            "topic": np.tile(np.arange(n_topics), n_groups),
            "name": np.tile(self.topic_names, n_groups),
            "share": self.share,
            "lower": self.lower,
            "upper": self.upper,
            "n_documents": np.repeat(self.n_documents, n_topics),
            "n_tokens": np.repeat(self.n_tokens, n_topics),
        }
        if self.refits is not None:
            columns |= {
                "refits_min": self.refits.min(axis=0),
                "refits_max": self.refits.max(axis=0),
            }
        return {name: np.ravel(one) for name, one in columns.items() if one is not None}


def read_labels(by: Any, n_docs: int) -> tuple[Array, Integers, Floats | None]:
    """Return sorted groups, the group of each document, and where the groups are on an axis.

    Labels may be of any kind; None is one group of all.  Documents without a label have -1.  If
    groups are not ordered, they are nowhere: None.

    Raises
    ------
    ValueError
        If there is not one label for each document, or they cannot be sorted.
    """
    if by is None:
        return np.array(["all"], object), np.zeros(n_docs, np.int64), None
    [by] = dask.compute(by) if is_dask(by) else [by]
    by = unmask(by, "by")
    labels = np.array(by, object) if isinstance(by, list | tuple) else np.asarray(by)
    if labels.shape != (n_docs,):
        raise ValueError(
            f"by has shape {labels.shape}, but X has {n_docs} documents; give one label for each"
        )
    kind = getattr(by, "cat", by)
    if hasattr(kind, "categories"):  # a categorical of pandas, or a series of one
        codes = np.array(kind.codes, np.int64)
        used = np.unique(codes[codes >= 0])
        codes[codes >= 0] = np.searchsorted(used, codes[codes >= 0])
        order = np.arange(len(used), dtype=np.float64) if kind.ordered else None
        return np.asarray(kind.categories)[used], codes, order
    find = getattr(by, "isna", lambda: list(map(is_missing, labels)))
    is_known = ~np.array(find(), bool)
    codes = np.full(n_docs, -1, np.int64)
    try:
        groups, codes[is_known] = np.unique(labels[is_known], return_inverse=True)
    except TypeError as error:
        raise ValueError(
            "by mixes what cannot be sorted, such as numbers with names; give numbers alone, or "
            "strings alone"
        ) from error
    groups = np.asarray(groups.tolist()) if labels.dtype.kind == "O" else groups
    return groups, codes, _places(groups)


def _places(groups: Array) -> Floats | None:
    """Return sorted numbers as they are, and dates or starts of periods in years, or None."""
    starts = [getattr(one, "start_time", one) for one in groups]
    if groups.dtype.kind == "O" and all(isinstance(one, date) for one in starts):
        groups = np.array([_utc(one) for one in starts], "M8[us]")
    if groups.dtype.kind == "M":
        return groups.astype("datetime64[us]").astype(np.float64) / (86400e6 * 365.25)
    return groups.astype(np.float64) if groups.dtype.kind in "iuf" else None


def _utc(one: Any) -> Any:
    """Return a date, or a time without a zone."""
    return one.astimezone(UTC).replace(tzinfo=None) if getattr(one, "tzinfo", None) else one


def slopes(places: Floats, weights: Floats, shares: Floats) -> Floats:
    """Return slopes (..., K) of weighted least-squares lines through shares (..., n_groups, K)."""
    distance = places - weights @ places / weights.sum()
    pull = weights * distance
    return np.asarray(np.einsum("g,...gk->...k", pull, shares) / (pull @ distance))


class SharesOfTopics(TopicsOfDocuments, MatchedTopics):
    """The methods of a fitted topic model, with the shares of topics in groups of documents."""

    def topic_shares(
        self,
        X: Any,
        by: Any = None,
        *,
        n_draws: int = 200,
        confidence_level: float = 0.95,
        weighted_by: str = "documents",
        n_fits: int = 0,
        random_state: Any = None,
    ) -> TopicShares:
        """Return the mean share of each topic in groups of documents, with intervals.

        Documents without words, and those without a label, are left out.

        Parameters
        ----------
        X : input as in `fit`, of shape (n_documents, n_features)
            Word counts.  A Dask collection stays on the cluster.
        by : array-like or Dask collection of shape (n_documents,), default=None
            Label of the group of each document: a number, date, period or name.  A pandas
            categorical is possible, too.  None, NaN and NaT are missing labels.  If `by` is None,
            all documents are one group.
        n_draws : int, default=200
            Number of random draws for the intervals, at least ``2 / (1 - confidence_level) - 1``.
            With 0, there are no intervals, and shares are means of the proportions that `transform`
            returns.
        confidence_level : float, default=0.95
            Confidence level of the intervals, between 0 and 1.
        weighted_by : {"documents", "tokens"}, default="documents"
            "documents" gives each document the same weight.  "tokens" gives each token the same
            weight, so long documents count more.
        n_fits : int, default=0
            Number of additional fits to X with other seeds.  Their topics are matched to those of
            this model by `match_topics`.  Their shares show how much the result depends on the fit.
        random_state : int, RandomState instance or None, default=None
            An int gives the same result every time, for any chunks, threads and workers.

        Returns
        -------
        TopicShares
            Its method ``table()`` returns a table for ``pandas.DataFrame``.

        Raises
        ------
        ValueError
            If a parameter is invalid.  If `by` does not have one label for each document, or has
            labels that cannot be sorted.
        MemoryError
            If the shares in all draws need more than 2 GiB, at 8 bytes for each number.  If
            `n_draws` is 0, and the topic proportions of all documents need more than 2 GiB.

        See Also
        --------
        TopicDisplay : Plots shares with their intervals.

        Notes
        -----
        The intervals come from the posterior of the shares, given the topics and priors of this
        fit.  The posterior is sampled by sweeps.  A sweep draws the topics of a document's tokens
        given its proportions, and then its proportions given these topics.  The first 20 sweeps are
        discarded, and then every third sweep is a draw.  If the topics and priors are the true
        ones, intervals with a `confidence_level` of 0.95 cover the true share with a probability of
        0.95.  The intervals leave out how uncertain the topics are, which `n_fits` shows.  They do
        not hold for documents outside X.

        Examples
        --------
        >>> import numpy as np
        >>> from schmp_estimators import DistributedLDA
        >>> rng = np.random.default_rng(0)
        >>> X = rng.poisson(np.kron(np.eye(2), np.ones((50, 5))))  # five words each of two topics
        >>> lda = DistributedLDA(2, max_iter=30, random_state=0).fit(X)
        >>> found = lda.topic_shares(X, ["one"] * 50 + ["two"] * 50, random_state=0)
        >>> found.groups.tolist(), found.share.shape
        (['one', 'two'], (2, 2))
        >>> bool((found.lower <= found.share).all() and (found.share <= found.upper).all())
        True
        """
        self._check("topic_shares", _SHARES, locals())
        least = math.ceil(2.0 / (1.0 - confidence_level) - 1.0 - 1e-9)
        if 0 < n_draws < least:
            raise ValueError(
                f"n_draws={n_draws} are too few for confidence_level={confidence_level}; give "
                f"{least} or more, or 0 for no intervals"
            )
        random = check_random_state(random_state)
        seed = int(random.randint(np.iinfo(np.int32).max))
        by_tokens = weighted_by == "tokens"

        def count(corpus: Corpus, place: Place) -> tuple[Any, ...]:
            lengths, rows = corpus.lengths, corpus.rows
            groups, codes, places = read_labels(by, len(lengths))
            counted = np.flatnonzero((lengths > 0) & (codes >= 0))
            own = codes[counted]
            n_groups = len(groups)
            n_topics = self._n_features_out
            n_documents = np.bincount(own, minlength=n_groups)
            n_tokens = np.bincount(own, lengths[counted], n_groups).astype(np.int64)
            shape = n_draws or len(lengths), n_groups if n_draws else 1, n_topics
            what = f"{n_draws} draws, {n_groups} groups, {len(lengths)} documents need"
            check_room(8 * math.prod(shape), what, "", "take fewer groups or draws, or ")
            model = rows.place.share(self._model())
            if n_draws:
                # Sums of rounded numbers are the same in any order; they fill 62 bits.
                scale = 0.0 if by_tokens else 2.0 ** (62 - len(lengths).bit_length())
                draw = partial(share_totals, seed=seed, shape=shape, scale=scale, each=place.each)
                codes = np.where(lengths > 0, codes, -1)
                ends = pairwise(offsets_of(corpus.partition_rows).tolist())
                given = [
                    (one, codes[a:b], a, model)
                    for one, (a, b) in zip(rows.partitions, ends, strict=True)
                ]
                totals = rows.merged(
                    rows.tasks(draw, given, "lda-shares"), tree_sum, "lda-shares"
                ) / (scale or 1.0)
            else:
                find = partial(proportions_of, each=place.each)
                theta = np.concatenate(rows.here(corpus.tasks(find, "lda-fold-in", self._model())))
                weights = lengths[counted] if by_tokens else np.ones(len(own))
                member = sparse.csr_array((weights, (own, counted)), (n_groups, len(lengths)))
                totals = (member @ theta)[None]
            n_empty = int(np.count_nonzero(lengths == 0))
            left = n_documents, n_tokens, n_empty, len(lengths) - n_empty - len(counted)
            return groups, places, totals, left

        groups, places, totals, left = self._with_documents(X, count)
        sizes = left[1 if by_tokens else 0]
        draws = totals / np.where(sizes > 0, sizes, np.nan)[:, None]
        trends = None
        if places is not None and np.count_nonzero(sizes) > 1:
            some = np.flatnonzero(sizes)
            trends = slopes(places[some], sizes[some].astype(float), draws[:, some])

        def summed_up(values: Floats | None) -> tuple[Any, Any, Any]:
            if values is None or not n_draws:
                return values if values is None else values[0], None, None
            ends = (1.0 - confidence_level) / 2.0, (1.0 + confidence_level) / 2.0
            # This method has the probability asked for with any number of draws.
            return values.mean(axis=0), *np.quantile(values, ends, axis=0, method="weibull")

        asked: Named = {"n_draws": n_draws, "confidence_level": confidence_level}
        asked["weighted_by"] = weighted_by
        refits = [
            other.topic_shares(X, by, **asked, random_state=seed).share[:, matched]
            for other, matched, _ in self._refits(X, n_fits, random)
        ]
        return TopicShares(
            groups,
            self.topic_names_,
            *summed_up(draws),
            *summed_up(trends),
            np.array(refits) if refits else None,
            *left,
        )
