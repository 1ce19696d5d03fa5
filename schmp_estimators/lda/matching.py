"""Which topics of two models are the same, and how stable those of one are."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from schmp_estimators.core.typing import Floats, Integers
from schmp_estimators.lda.describe import SOME, DescribedTopics
from schmp_estimators.lda.names import check_labels
from schmp_estimators.lda.parameters import as_numbers
from schmp_estimators.lda.use import check_room


class MatchedTopics(DescribedTopics):
    """The methods of a fitted topic model, with those that compare it with others."""

    def match_topics(self, other: Any) -> tuple[Integers, Floats]:
        """Match the topics with those of another model, one to one.

        The matching makes the sum of the similarities as large as possible.

        Parameters
        ----------
        other : fitted model, or array-like of shape (n_others, n_features)
            A `DistributedLDA`, another model with `components_`, or an array of the weights of
            words in topics.  The words must be the same, in the same order, but the number of
            topics may differ.

        Returns
        -------
        matched : ndarray of shape (n_components,), int64
            For each topic, the number of its match in the other model.  It is -1 for topics without
            a match, if the other model has fewer topics.
        similarity : ndarray of shape (n_components,), float64
            Cosine similarity of the word distributions of the topic and its match, from 0 to 1.  It
            is NaN without a match.

        Raises
        ------
        ValueError
            If the other model has other words or invalid weights.
        MemoryError
            If the similarities of all pairs of topics, at 8 bytes each, need more than 2 GiB.

        See Also
        --------
        topic_stability : How similar topics are in fits with other seeds.

        Notes
        -----
        The word distributions are the rows of `components_`, divided by their sums.  For a
        `DistributedLDA`, the dense array `components_` is not made.

        Examples
        --------
        >>> import numpy as np
        >>> from schmp_estimators import DistributedLDA
        >>> rng = np.random.default_rng(0)
        >>> X = rng.poisson(np.kron(np.eye(3), np.ones((50, 5))))  # five words each of three topics
        >>> one, other = (
        ...     DistributedLDA(3, max_iter=30, random_state=seed).fit(X) for seed in (0, 1)
        ... )
        >>> matched, similarity = one.match_topics(other)
        >>> sorted(matched.tolist())
        [0, 1, 2]
        >>> bool((similarity > 0.9).all())
        True
        """
        check_is_fitted(self)
        ours = _weights(self)
        theirs = _weights(other)
        n_ours, n_words = ours[0].shape
        n_theirs, n_their_words = theirs[0].shape
        _check_words(self, other, n_words, n_their_words)
        both = f"{n_ours} and {n_theirs} topics need"
        check_room(8 * n_ours * n_theirs, both, " for the similarities of all pairs")
        cosines = _cosines(*ours, *theirs)
        matched = np.full(n_ours, -1, np.int64)
        similarity = np.full(n_ours, np.nan)
        rows, columns = linear_sum_assignment(cosines, maximize=True)
        matched[rows] = columns
        similarity[rows] = cosines[rows, columns]
        return matched, similarity

    def topic_stability(self, X: Any, n_fits: int = 4, *, random_state: Any = None) -> Floats:
        """Return how similar the topics of this fit are to those of fits with other seeds.

        Parameters
        ----------
        X : input as in `fit`
            The word counts to which this model was fitted.
        n_fits : int, default=4
            Number of clones that are fitted, each with its own seed.
        random_state : int, RandomState instance or None, default=None
            Source of the seeds.

        Returns
        -------
        ndarray of shape (n_components,), float64
            Mean similarity of each topic to its matches in the other fits, from 0 to 1, as in
            `match_topics`.

        Raises
        ------
        ValueError
            As in `fit`, and if `n_fits` is less than 1.

        Notes
        -----
        The clones have the parameters of this model, except that `random_state` differs,
        `checkpoint` is None, and "auto" replaces a folder for `spill`.  For models already fitted,
        compute ``np.mean([lda.match_topics(other)[1] for other in models], axis=0)``.

        Examples
        --------
        >>> import numpy as np
        >>> from schmp_estimators import DistributedLDA
        >>> rng = np.random.default_rng(0)
        >>> X = rng.poisson(np.kron(np.eye(3), np.ones((50, 5))))  # five words each of three topics
        >>> lda = DistributedLDA(3, max_iter=30, random_state=0).fit(X)
        >>> bool((lda.topic_stability(X, 2, random_state=0) > 0.9).all())
        True
        """
        self._check("topic_stability", {"n_fits": SOME}, locals())
        self._with_documents(X, lambda *_: None)  # raises if it has other columns
        found = [similarity for _, _, similarity in self._refits(X, n_fits, random_state)]
        return np.asarray(np.mean(found, axis=0))

    def _refits(
        self, X: Any, n_fits: int, random_state: Any
    ) -> Iterator[tuple[Any, Integers, Floats]]:
        """Yield fits of clones with other seeds.

        Each comes with the topics that match these, and how similar they are.
        """
        seeds = check_random_state(random_state).randint(np.iinfo(np.int32).max, size=n_fits)
        for seed in seeds.tolist():
            spill = None if self.spill is None else "auto"  # a folder belongs to one fit
            again = clone(self).set_params(random_state=seed, feature_names=self._names(None))
            again.set_params(checkpoint=None, spill=spill).fit(X)
            yield again, *self.match_topics(again)

    spill: Any


def _weights(model: Any) -> tuple[sparse.csr_array, float]:
    """Return the weights of words in topics as a sparse array, and what is added to each."""
    if isinstance(model, DescribedTopics):
        check_is_fitted(model)
        return sparse.csr_array(model._tokens(), dtype=np.float64), float(model.topic_word_prior_)
    given = getattr(model, "components_", model)
    wanted = "other must be a fitted topic model, or weights of words in topics"
    found = sparse.csr_array(
        given if sparse.issparse(given) else as_numbers(given, wanted), dtype=np.float64
    )
    if found.ndim != 2 or not (np.isfinite(found.data) & (found.data >= 0)).all():
        raise ValueError(
            "other must have finite weights >= 0, one row for each topic and one column for each "
            "word"
        )
    return found, 0.0


def _check_words(model: Any, other: Any, n_ours: int, n_theirs: int) -> None:
    if n_ours != n_theirs:
        raise ValueError(
            f"other has topics of {n_theirs} words, but this model of {n_ours}; both must be "
            "fitted to the same columns"
        )
    ours = model._names(None)
    is_ours = isinstance(other, DescribedTopics)
    theirs = other._names(None) if is_ours else getattr(other, "feature_names_in_", None)
    own = range(n_ours) if ours is None else ours.tolist()
    if not is_ours:  # those have a property that makes a dense array
        check_labels(getattr(other, "components_", other), -1, own, "other")
    if ours is None or theirs is None:
        return
    for at, (one, its) in enumerate(zip(own, theirs.tolist(), strict=True)):
        if one != its:
            raise ValueError(
                f"column {at} is the word '{one}' in this model, but '{its}' in other; count both "
                "with one vocabulary"
            )


def _cosines(
    ours: sparse.csr_array, beta: float, theirs: sparse.csr_array, their_beta: float
) -> Floats:
    """Return the cosines of all pairs of rows of two sparse arrays.

    A number each is added to the entries of the arrays.
    """
    n_words = ours.shape[1]
    sums = ours.sum(axis=1)
    their_sums = theirs.sum(axis=1)
    products = (
        (ours @ theirs.T).toarray()
        + their_beta * sums[:, None]
        + beta * their_sums
        + n_words * beta * their_beta
    )
    norms = np.sqrt(ours.power(2).sum(axis=1) + beta * (2 * sums + n_words * beta))
    their_norms = np.sqrt(
        theirs.power(2).sum(axis=1) + their_beta * (2 * their_sums + n_words * their_beta)
    )
    scales = norms[:, None] * their_norms
    return np.clip(
        np.divide(products, scales, out=np.zeros_like(products), where=scales > 0), 0.0, 1.0
    )
