"""One fit of `ModelParallelMF`: the shards of its ratings, the program, and the result."""

import logging
from collections.abc import Sequence
from functools import partial
from itertools import chain
from operator import getitem
from typing import Any

import numpy as np

from schmp_estimators.core.engine.running import AnyRun, Source, static_run
from schmp_estimators.core.io.checkpoint import recognised
from schmp_estimators.core.lanes import padded_width
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.program import Harvest
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.sweeps import Sweeps
from schmp_estimators.core.typing import Array, Integers, Named
from schmp_estimators.core.values import itself
from schmp_estimators.mf import parameters
from schmp_estimators.mf.data import ratings as data
from schmp_estimators.mf.data.inputs import nothing_to_draw
from schmp_estimators.mf.data.rows import RatingRows
from schmp_estimators.mf.data.scale import (
    AS_THEY_ARE,
    Scale,
    choose_scale,
    left_by_biases,
    mean_and_spread,
    read_moments,
)
from schmp_estimators.mf.data.seen import (
    DuplicateRatingError,
    RepeatedCallError,
    SeenItems,
    check_not_seen,
    pairs_of_all,
    rows_of_pairs,
    without_pairs,
)
from schmp_estimators.mf.kernels.layout import Placement, deal
from schmp_estimators.mf.programs.ccd import CcdFactorization
from schmp_estimators.mf.programs.factors import HOLD_OUT, Side, gather, rescaled
from schmp_estimators.mf.programs.implicit import ImplicitFactorization
from schmp_estimators.mf.programs.sgd import BspFactorization, SgdFactorization

logger = logging.getLogger(__name__)


class MFFit:
    """A fit in progress.

    Parameters
    ----------
    estimator : ModelParallelMF
        Its `history_` and `n_iter_` are set while the fit runs.
    ratings : RatingRows
        The ratings; their partitions are released as soon as there are shards.
    place : Place
        Where the fit runs.
    seed : int
    anew : bool
        Whether this is a first fit; otherwise it starts from the fitted attributes of the
        estimator.
    """

    def __init__(
        self, estimator: Any, ratings: RatingRows, place: Place, *, seed: int, anew: bool
    ) -> None:
        self._estimator = estimator
        self._ratings = ratings
        self._pieces = ratings.pieces
        self._place = place
        self._seed = seed
        self._hold_out = data.NOTHING
        self._shape = len(ratings.known.users), len(ratings.known.items)
        #: The attributes of the earlier fit, and its users and items, if there is one.
        self._before: Named = {} if anew else dict(vars(estimator))
        self._n_epochs: int = self._before.get("_n_epochs", 0)
        self._earlier: tuple[Side, ...] = ()
        if not anew:
            users = Side(estimator.user_factors_, estimator.user_bias_)
            self._earlier = users, Side(estimator.components_.T, estimator.item_bias_)
        self._unobserved = float(estimator.unobserved_weight)
        self._ranks = estimator.loss != "squared"
        # After an earlier fit ratings are fitted by sums, to which the influence of earlier ratings
        # is added.
        self._solver = parameters.choose_solver(estimator, ratings.are_weighted)
        self._gradients = self._solver == "sgd" and (anew or self._ranks)
        self._rotating = self._gradients and (estimator.schedule == "rotation" or not anew)
        self._n_earlier = self._read_earlier() if self._ranks and not anew else 0
        self._power, weight = parameters.power_of(estimator.penalty, self._unobserved)
        #: What missing pairs add to the counts of a user and of an item in the penalty.
        self._missing = weight * self._shape[1], weight * self._shape[0]
        #: None until it is computed from the ratings.
        self._alpha: Any = parameters.given_alpha(estimator, anew)
        zero = [0.0] if self._unobserved else []
        ends = [*ratings.range, *self._before.get("rating_range_", ()), *zero]
        self._range = min(ends), max(ends)
        #: The items that each user has rated, if they are kept.
        self._seen: SeenItems | None = None
        #: The best factors so far, if early stopping keeps them.
        self._best: tuple[Side, ...] = ()

    def run(self, X: Any, y: Any) -> Named:
        """Factorise, and return the fitted attributes.

        They have the last factors, or with early stopping the best.
        """
        if self._estimator.early_stopping:
            key = stream_key(self._seed, HOLD_OUT)
            share = self._estimator.validation_fraction
            self._hold_out = data.choose_hold_out(self._pieces, key, float(share))
        try:
            return self._run(X, y)
        except DuplicateRatingError as twice:
            users, items = self._ratings.known
            raise DuplicateRatingError(
                users[twice.user], items[twice.item], twice.earlier
            ) from None

    def _read_earlier(self) -> int:
        """Add the clicks of earlier calls, and return their number.

        So all clicks are fitted and counted again.
        """
        seen, *_ = (self._before.pop(name) for name in ("_seen", "_occur", "_counts"))
        pieces = self._pieces
        pairs = pairs_of_all(seen)
        shared = pieces.place.share(pairs)
        new = [(piece, shared) for piece in pieces.partitions]
        earlier = pieces.place.share(rows_of_pairs(pairs, self._shape[0]))
        pieces.partitions = [*pieces.tasks(without_pairs, new, "mf-new-clicks"), earlier]
        return pairs.size

    def _run(self, X: Any, y: Any) -> Named:
        estimator = self._estimator
        self._choose()
        told = map(repr, (self._told, self._hold_out, self._scale))
        data_told = chain(told, map(recognised, self._ratings.known))
        sweeps = Sweeps(estimator, self._program, self._n_shards, data_told, parameters.NAMES)
        saved = sweeps.found["saved"]
        self._best = sweeps.found.get("best", ())
        plan = self._plan
        if self._earlier:
            sides = [rescaled(side, 1 / self._scale.unit) for side in self._earlier]
            if self._gradients:
                rows = plan.users.members, plan.items.members
                saved = self._program.begin_from(sides, self._counts, rows)
            else:
                counts = self._before["_counts"], self._counts
                items = plan.item_ids, plan.item_counts[plan.item_ids]
                saved = self._program.begin_from(sides, *counts, plan.users.members, *items)
        with static_run(
            self._program,
            self._sources(),
            self._place,
            n_sweeps=estimator.max_iter,
            saved=saved,
            first=sweeps.first,
            may_ask=self._may_ask,
            ends=estimator._ends,
        ) as run:
            found = run.told_by_sources()  # all shards have been made by then
            if plan.keep_seen:
                self._seen = SeenItems(tuple(found), plan.users, plan.item_ids)
                if self._earlier and not self._unobserved:
                    check_not_seen(self._seen, self._before.get("_seen") or ())
            for done in sweeps.follow(
                run,
                X,
                y,
                place=self._place,
                attributes=lambda harvest: self._attributes(self._factors(harvest)),
                n_samples=self._n_ratings,
                kept=lambda: {"best": self._best},
            ):
                self._check_finite(done)
                self._keep_best(run)
            return self._attributes(self._best or self._factors(run.finish()))

    def _may_ask(self, sweep: int) -> bool:
        """Return whether the fit may need more than the record of a sweep.

        It is also true if the fit may end there for reasons but `tol`.
        """
        estimator = self._estimator
        asks = estimator._may_ask(sweep, estimator.checkpoint_every)
        return bool(estimator.early_stopping or asks)

    def _check_finite(self, done: int) -> None:
        estimator = self._estimator
        record = estimator.history_[-1]
        if record.get("running_loss") == 0 and done == 1 and not self._before:
            raise nothing_to_draw(estimator.loss)
        if np.isfinite(record.get("running_loss", record.get("running_rmse"))):
            return
        if self._unobserved:
            remedy = (
                f"lower unobserved_weight={self._unobserved:g}, or scale ratings and weights down"
            )
        elif self._gradients:
            copies = "" if self._rotating else f" for {self._n_shards} copies of the items"
            remedy = (
                f"learning_rate={estimator.learning_rate:g} is too large{copies}; lower it, or "
                "raise alpha"
            )
        else:
            remedy = "raise alpha"
        raise ValueError(f"the factors have grown beyond all bounds in epoch {done}; {remedy}")

    def _keep_best(self, run: AnyRun) -> None:
        """Keep the factors if they have the smallest error on held-out ratings so far."""
        name = "validation_rmse"
        errors = [one[name] for one in self._estimator.history_ if name in one]
        if errors and errors[-1] < min(errors[:-1], default=np.inf):
            self._best = self._factors(run.harvest())

    def _choose(self) -> None:
        """Count and measure the ratings.

        Then choose the number of shards, what they contain, and the program.
        """
        estimator, before = self._estimator, self._before
        grid = self._ratings.grid
        count = partial(
            data.count_and_measure, self._shape, self._hold_out, grid, self._alpha is None
        )
        counted = self._pieces.reduce(count, tree_sum, "mf-count-ratings")
        occur, counts = map(self._sides, counted.counts)
        moments, weighted = read_moments(counted.moments)
        weights = self._sides(counted.weights) if counted.weights.size else counts
        clicks = counts if self._unobserved else weights
        # For users and items clicks so far, and sums of weights; for ratings the sums twice.
        both = [
            np.stack(pair, axis=1).astype(np.float32) for pair in zip(clicks, weights, strict=True)
        ]
        self._occur = _grown([rows > 0 for rows in occur], before.get("_occur", ()))
        self._counts = _grown(both, before.get("_counts", ()))
        self._told = tuple(counted.told.tolist())
        if self._alpha is None:
            left = left_by_biases(moments, counts, self._sides(counted.sums))
            self._alpha = parameters.choose_alpha(self._power, counts, left)
        elif estimator.alpha == "auto" and any(self._missing) and not before:
            self._alpha = parameters.scaled_alpha(self._alpha, self._power, self._missing, counts)
        self._n_ratings = int(counts[0].sum())
        if self._n_ratings == self._n_earlier:
            raise RepeatedCallError
        mean, spread = mean_and_spread(weighted, grid)
        keep_seen = self._pieces.place.is_local
        if self._unobserved or self._ranks:  # clicks have no scale, and add up
            self._scale = AS_THEY_ARE
        elif before:
            self._scale = Scale(estimator.global_mean_, estimator.rating_scale_)
            self._check_against_earlier(mean, spread, keep_seen)
        else:
            self._scale = choose_scale(mean, spread, bool(estimator.fit_bias))
            low, high = self._range
            if 0 < low == high and 1 < self._n_ratings < self._shape[0] * self._shape[1]:
                parameters.warn_of_equal_ratings(mean, self._n_ratings)
        users, items = self._deal(counts)
        width = padded_width(int(estimator.n_components))
        form = self._gradients, keep_seen, bool(self._unobserved), width, self._ranks
        self._plan = data.ShardPlan(users, items, clicks[1], self._hold_out, *form)
        self._program = self._choose_program(mean)

    def _sides(self, array: Array) -> list[Array]:
        """Return the parts of users and of items, for an array of both."""
        return [part.copy() for part in np.split(array, self._shape[:1])]

    def _check_against_earlier(self, mean: float, spread: float, keep_seen: bool) -> None:
        """Raise if ratings have another scale than earlier ones, or are from an earlier call."""
        estimator = self._estimator
        earlier, unit = self._scale
        if max(spread, abs(mean - earlier)) > 100 * unit:
            raise ValueError(
                f"ratings of mean {mean:g} and standard deviation {spread:g} are not on the scale "
                f"of the first fit, whose mean was {earlier:g} and deviation {unit:g}; begin anew "
                "with fit"
            )
        if self._told in estimator._told:
            raise RepeatedCallError
        is_checked = keep_seen and estimator._seen is not None  # pair by pair, in the shards
        if not is_checked and self._told[0] in {pairs for pairs, _ in estimator._told}:
            raise ValueError(
                "the pairs of this call are those of an earlier one, with other ratings, and each "
                "is rated once; leave them out of partial_fit, or begin anew with fit"
            )

    def _deal(self, counts: Sequence[Integers]) -> list[Placement]:
        """Assign users and items to shards.

        After an earlier fit, only those with new ratings or missing pairs take part.
        """
        anew = not self._earlier
        every = anew, anew or bool(self._unobserved)  # missing pairs concern all items
        self._moved = [(rows > 0) | whole for rows, whole in zip(counts, every, strict=True)]
        # Rows that have only held-out ratings need a place, too.
        taking_part = [mask | bool(self._hold_out.threshold) for mask in self._moved]
        n_users, n_items = (int(mask.sum()) for mask in taking_part)
        n_items = int(np.count_nonzero(counts[1])) if self._ranks else n_items
        self._n_shards = self._choose_shards(n_users, n_items)
        n_groups = self._n_shards, self._n_shards if self._rotating else 1
        return list(map(deal, counts, n_groups, taking_part))

    def _sources(self) -> list[Source]:
        """Make the shards, or divide the ratings among them.

        So they are made where they are needed.
        """
        pieces, place, shards = self._pieces, self._place, range(self._n_shards)
        if place.is_local:
            given = self._scale, self._plan, *pieces.partitions
            try:
                made = place.each(lambda p: data.make_shard(p, *given), shards)
            except DuplicateRatingError:  # of the shard whose thread was fastest
                made = [data.make_shard(p, *given) for p in shards]
            pieces.partitions = []
            return [Source(itself, (one,), tells=True) for one in made]
        plan = place.lasting(self._plan)
        split = partial(data.split_ratings, self._plan.users, self._shape[1], self._scale)
        found = pieces.each(split, "mf-split-ratings")
        pieces.partitions = []  # from now on only the parts for shards are needed
        return [
            Source(
                partial(data.make_shard, p, AS_THEY_ARE),
                (plan, *pieces.place.map(getitem, [(one, p) for one in found], "mf-take-part")),
                tells=True,
            )
            for p in shards
        ]

    def _choose_shards(self, n_users: int, n_items: int) -> int:
        """Return the number of shards.

        Of the number asked for, shards that would be empty are left out.
        """
        most = n_users
        if self._rotating:
            most = min(most, n_items // (data.ITEMS_TO_DRAW_FROM if self._ranks else 1))
        asked = self._estimator.n_shards
        usual = data.usual_shards(self._n_ratings, n_items, self._gradients)
        chosen = max(1, min(int(asked or usual), most))
        if asked and chosen < asked:
            logger.info(
                "n_shards=%d: %d users and %d items make %d", asked, n_users, n_items, chosen
            )
        return chosen

    def _choose_program(self, mean: float) -> Any:
        """Return the program, given the mean of the ratings."""
        estimator = self._estimator
        centre, unit = self._scale
        clicks = bool(self._unobserved)
        positive = bool(estimator.positive)
        without_mean = estimator.fit_bias or self._ranks or clicks
        mean = 0.0 if without_mean else (mean - centre) / unit
        fit_bias = bool(estimator.fit_bias and not clicks)
        seed = self._seed + self._n_epochs  # so that each call draws other items
        common = (
            int(estimator.n_components), mean, self._alpha, self._power, fit_bias, positive, seed,
            unit
        )  # fmt: skip
        if clicks:
            anew = not self._earlier and not positive  # centred items are not positive
            return ImplicitFactorization(*common, self._unobserved, self._missing, anew)
        if not self._gradients:
            return CcdFactorization(*common)
        program = SgdFactorization if self._rotating else BspFactorization
        how = float(estimator.learning_rate), int(estimator.evaluate_every)
        return program(*common, *how, bool(self._hold_out.threshold), estimator.loss)

    def _factors(self, harvest: Harvest) -> tuple[Side, ...]:
        """Return users and items, in the units of the ratings."""
        placements = self._plan.users, self._plan.items
        sides = zip(self._program.sides(harvest), placements, strict=True)
        found = tuple(gather(*placed, self._scale.unit) for placed in sides)
        for side, before, moved in zip(found, self._earlier, self._moved, strict=False):
            kept = np.flatnonzero(~moved[: len(before.bias)])
            side.factors[kept] = before.factors[kept]
            side.bias[kept] = before.bias[kept]
        return found

    def _attributes(self, factors: tuple[Side, ...]) -> Named:
        """Return the fitted attributes."""
        users, items = factors
        known, before = self._ratings.known, self._before
        seen = before.get("_seen", ())
        return {
            "components_": items.factors.T,
            "user_factors_": users.factors,
            "user_bias_": users.bias,
            "item_bias_": items.bias,
            "global_mean_": self._scale.mean,
            "rating_scale_": self._scale.unit,
            "solver_": self._solver,
            "alpha_": self._alpha,
            "rating_range_": self._range,
            "user_ids_": known.users,
            "item_ids_": known.items,
            "n_shards_": self._n_shards,
            "_fitted_on_pairs": before.get("_fitted_on_pairs", self._ratings.are_pairs),
            "_occur": self._occur,
            "_counts": self._counts,
            "_unobserved": self._unobserved,
            "_loss": self._estimator.loss,
            "_n_epochs": self._n_epochs + self._estimator.n_iter_,
            # Ratings of a Dask input are not kept, so it is not known who has rated what.
            "_seen": None if self._seen is None or seen is None else (*seen, self._seen),
            "_told": (*before.get("_told", ()), self._told),
            "_tables": {},
        }


def _grown(sides: Sequence[Array], earlier: Sequence[Array]) -> tuple[Array, ...]:
    """Return sides with what earlier fits have counted added to them; mutates `sides`.

    Earlier fits may have had fewer rows.
    """
    for now, before in zip(sides, earlier, strict=False):
        now[: len(before)] += before
    return tuple(sides)
