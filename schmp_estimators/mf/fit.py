"""One fit of `ModelParallelMF`: the shards of its ratings, the program that runs, and the result."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.engine.running import AnyRun, Source, static_run
from schmp_estimators.core.io.checkpoint import Checkpoint, check_sweeps, identity_of
from schmp_estimators.core.lanes import padded_width
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.program import Harvest, Saved, identity
from schmp_estimators.core.rng import stream_key
from schmp_estimators.mf.data import ratings as data
from schmp_estimators.mf.data.ids import is_text, united
from schmp_estimators.mf.data.rows import RatingRows
from schmp_estimators.mf.data.scale import AS_THEY_ARE, Scale, choose_scale, left_by_biases, mean_and_spread
from schmp_estimators.mf.data.seen import DuplicateRatingError, RepeatedCallError, SeenItems, check_not_seen
from schmp_estimators.mf.kernels.layout import Placement, deal
from schmp_estimators.mf.losses import RANKING
from schmp_estimators.mf.parameters import (
    ALPHA_OF_CLICKS,
    ALPHA_OF_RANKING,
    NAMES,
    choose_alpha,
    choose_solver,
    warn_of_equal_ratings,
)
from schmp_estimators.mf.programs.bsp import BspFactorization
from schmp_estimators.mf.programs.ccd import CcdFactorization
from schmp_estimators.mf.programs.factors import Factors, gather, rescaled
from schmp_estimators.mf.programs.implicit import ImplicitFactorization
from schmp_estimators.mf.programs.sgd import SgdFactorization

logger = logging.getLogger(__name__)

#: Number of the stream of random numbers that decides about held-out ratings; 0 and 1 are those of the factors.
_HOLD_OUT = 2
#: Ratings that differ by this many deviations from those of an earlier fit are on another scale.
_OTHER_SCALE = 100


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
    earlier, scale, counts : Factors, Scale, and sequence of ndarray of shape (n, 2), optional
        From the earlier fit: its factors, from which this one starts, its scale, and its `counts`.

    Attributes
    ----------
    scale : Scale
        The mean that is subtracted from the ratings, and the unit that divides them, once `run` has begun.
    alpha : float
        The weight of the penalty, once `run` has begun.
    known : Known
        The ids of the rows.
    occur : tuple of two ndarray of bool
        Which rows of users and of items have ratings, here or in earlier fits, once `run` has begun.
    on_pairs : bool
        Whether the first fit of the estimator was one of pairs.
    counts : tuple of two ndarrays of shape (n, 2), float32
        For users and items, once `run` has begun: clicks and sums of confidences; for ratings sums of weights, twice.
    told : tuple of two ints
        Hashes of the pairs and of the ratings, which do not depend on their order, once `run` has begun.
    solver : str
        The solver: "sgd" or "ccd".
    range : tuple of two floats
        The smallest and the largest rating; with implicit feedback including the zeros of missing pairs.
    """

    def __init__(
        self,
        estimator: Any,
        ratings: RatingRows,
        place: Place,
        *,
        seed: int,
        earlier: Factors | None = None,
        scale: Scale | None = None,
        counts: Sequence[NDArray[np.float32]] = (),
    ) -> None:
        self._estimator, self._pieces, self._place = estimator, ratings.pieces, place
        self._seed, self._earlier, self._earlier_scale, self._earlier_counts = seed, earlier, scale, counts
        self._grid, self.known = ratings.grid, ratings.known
        self.on_pairs = ratings.are_pairs if earlier is None else estimator._fitted_on_pairs
        self._shape = len(self.known.users), len(self.known.items)
        self._hold_out = data.NOTHING
        # After an earlier fit ratings are fitted by sums, to which the influence of earlier ratings is added.
        self.solver = choose_solver(estimator, ratings.are_weighted)
        self._gradients = self.solver == "sgd" and earlier is None
        self._unobserved, self._ranks = float(estimator.unobserved_weight), estimator.loss in RANKING
        #: Automatic `alpha` for clicks and for losses that rank; None for ratings, from which it is computed.
        self._alpha_of_clicks = ALPHA_OF_CLICKS if self._unobserved else ALPHA_OF_RANKING if self._ranks else None
        ranges = [ratings.range, (0.0, 0.0)] if self._unobserved else [ratings.range]
        ranges += [estimator.rating_range_] if earlier is not None else []
        self.range = min(low for low, _ in ranges), max(high for _, high in ranges)
        self._rotating = self._gradients and estimator.schedule == "rotation"
        self._checkpoint: Checkpoint | None = None
        #: The items that each user has rated, shard by shard; None until the shards have been made.
        self._seen: list[Any] | None = None
        #: The best factors so far, if early stopping keeps them.
        self._best: Factors | None = None

    def run(self, X: Any, y: Any) -> Factors:
        """Factorise, and return the last factors, or with early stopping the best."""
        estimator = self._estimator
        if estimator.early_stopping:
            share = np.uint64(float(estimator.validation_fraction) * 2.0**64)
            hold_out = data.HoldOut(stream_key(self._seed, _HOLD_OUT), share)
            draw = self._pieces.reduce(partial(data.draw_hold_out, hold_out=hold_out), data.add_draws, "mf-hold-out")
            self._hold_out = data.settle_hold_out(hold_out, draw)
        try:
            return self._run(X, y)
        except DuplicateRatingError as twice:
            users, items = self.known
            raise DuplicateRatingError(users[twice.user], items[twice.item], twice.earlier) from None

    def _run(self, X: Any, y: Any) -> Factors:
        estimator = self._estimator
        self._choose()
        here = self._pieces.place.is_local
        first, saved, estimator.history_ = 0, None, []
        if here and not self._place.is_local and estimator.checkpoint is None:
            sources = self._shards_made_there()
        else:
            made = self._make_shards()
            if estimator.checkpoint is not None:
                first, saved, estimator.history_ = self._resume(made)
            sources = [Source(attrgetter("shard"), (one,)) for one in made]
        if self._earlier is not None:
            saved = self._begin_from(self._earlier)
        estimator.n_iter_ = first
        options: dict[str, Any] = {"n_sweeps": estimator.max_iter, "saved": saved, "first": first}
        options |= {"may_ask": self._may_ask, "ends": estimator._ends}
        with static_run(self._program, sources, self._place, **options) as run:
            self._seen = self._seen or run.told_by_sources()  # all shards have been made by then
            if self._earlier is not None and self.seen is not None:
                check_not_seen(self.seen, estimator._seen or ())
            told: dict[str, Any] = {"place": self._place, "first": first, "n_samples": self._n_ratings}
            told |= {"snapshot": partial(self._attributes, run), "took": lambda: run.took}
            for done in estimator._follow(run, X, y, **told):
                self._check_finite(done)
                self._keep_best(run)
                if self._checkpoint and done % estimator.checkpoint_every == 0:
                    self._write(run, done)
            if self._checkpoint and estimator.n_iter_ % estimator.checkpoint_every:
                self._write(run, estimator.n_iter_)
            return self._best or self._factors(run.harvest())

    def _may_ask(self, sweep: int) -> bool:
        """Return whether the fit may need more than the record of a sweep, or may end there for reasons but `tol`."""
        estimator, after = self._estimator, sweep + 1
        return bool(estimator.early_stopping or estimator._may_ask(sweep, after % estimator.checkpoint_every == 0))

    def _check_finite(self, done: int) -> None:
        estimator = self._estimator
        record = estimator.history_[-1]
        if record.get("running_loss") == 0:
            raise ValueError(
                f"with loss={estimator.loss!r} no item can be drawn beside any pair, as all users took all items; rank "
                "more items"
            )
        if np.isfinite(record.get("running_loss", record.get("running_rmse"))):
            return
        what = f"the factors have grown beyond all bounds in epoch {done}"
        if self._unobserved:
            raise ValueError(f"{what}; lower unobserved_weight={self._unobserved:g}, or scale ratings and weights down")
        if not self._gradients:
            raise ValueError(f"{what}; raise alpha")
        copies, rate = "" if self._rotating else f" for {self.n_shards} copies of the items", estimator.learning_rate
        raise ValueError(f"{what}: learning_rate={rate:g} is too large{copies}; lower it, or raise alpha")

    def _keep_best(self, run: AnyRun) -> None:
        """Keep the factors if they have the smallest error on held-out ratings so far."""
        errors = [record["validation_rmse"] for record in self._estimator.history_ if "validation_rmse" in record]
        if errors and errors[-1] < min(errors[:-1], default=np.inf):
            self._best = self._factors(run.harvest())

    def _resume(self, made: Sequence[Any]) -> tuple[int, Saved | None, list[dict[str, Any]]]:
        """Return the first sweep to do, the state to start from, and the history so far."""
        estimator, pieces = self._estimator, self._pieces
        shards = pieces.here(pieces.tasks(data.hash_shard, list(zip(made, strict=True)), "mf-hash-shard"))
        told = [*shards, repr((self.scale, *map(_digest, self.known)))]
        found = identity_of(estimator, told, **identity(self._program, NAMES), n_shards=self.n_shards)
        self._checkpoint = Checkpoint(estimator.checkpoint, found)
        if (found := self._checkpoint.read()) is None:
            return 0, None, []
        done, self._best = len(found["history"]), found["best"]
        check_sweeps(self._checkpoint.url, done, estimator.max_iter)
        logger.info("continuing after epoch %d from %s", done, self._checkpoint.url)
        return done, found["saved"], found["history"]

    def _write(self, run: AnyRun, done: int) -> None:
        assert self._checkpoint is not None
        values = {"history": list(self._estimator.history_), "best": self._best}
        run.keep(self._checkpoint, done, lambda saved: {**values, "saved": saved})

    def _choose(self) -> None:
        """Count and measure the ratings; choose the number of shards, what they contain, and the program."""
        pieces, (n_users, n_items) = self._pieces, self._shape
        alpha = self._given_alpha()
        how: dict[str, Any] = {"hold_out": self._hold_out, "grid": self._grid, "sums_rows": alpha is None}
        count = partial(data.count_and_measure, n_users=n_users, n_items=n_items, **how)
        counted = pieces.reduce(count, data.add_counted, "mf-count-ratings")
        self.occur = united(counted.occur, n_users, () if self._earlier is None else self._estimator._occur)
        self.alpha = self._choose_alpha(counted) if alpha is None else alpha
        self.counts, self.told = self._add_counts(counted), counted.told
        self._n_ratings = int(counted.counts[:n_users].sum())
        self._measured = mean, spread = mean_and_spread(counted.weighted, self._grid)
        keep_seen = pieces.place.is_local
        if self._earlier is not None:
            self._check_against_earlier(keep_seen)
        self.scale = self._earlier_scale or choose_scale(mean, spread, bool(self._estimator.fit_bias))
        if self._alpha_of_clicks is not None:
            self.scale = AS_THEY_ARE
        elif 0 < self.range[0] == self.range[1] and 1 < self._n_ratings < n_users * n_items and self._earlier is None:
            warn_of_equal_ratings(mean, self._n_ratings)
        users, items = self._deal(counted.counts[:n_users], counted.counts[n_users:])
        width = padded_width(int(self._estimator.n_components))
        form = self._gradients, keep_seen, bool(self._unobserved), width, self._ranks
        item_counts = (counted.counts if self._unobserved else counted.confidences)[n_users:]
        self._plan = data.ShardPlan(users, items, item_counts, self._hold_out, *form)
        self._choose_program()

    def _check_against_earlier(self, keep_seen: bool) -> None:
        """Raise an error if ratings are on another scale than earlier ones, or are those of an earlier call."""
        estimator, (mean, spread), (earlier, unit) = self._estimator, self._measured, self._earlier_scale or AS_THEY_ARE
        if not self._unobserved and max(spread, abs(mean - earlier)) > _OTHER_SCALE * unit:
            raise ValueError(
                f"ratings of mean {mean:g} and standard deviation {spread:g} are not on the scale of the first fit, "
                f"whose mean was {earlier:g} and deviation {unit:g}; begin anew with fit"
            )
        if self.told in estimator._told:
            raise RepeatedCallError
        if not (keep_seen and estimator._seen is not None) and self.told[0] in {pairs for pairs, _ in estimator._told}:
            raise ValueError(
                "the pairs of this call are those of an earlier one, with other ratings, and each is rated once; leave "
                "them out of partial_fit, or begin anew with fit"
            )

    def _deal(self, user_counts: NDArray[np.int64], item_counts: NDArray[np.int64]) -> tuple[Placement, Placement]:
        """Assign users and items to shards; after an earlier fit, only those with new ratings or missing pairs."""
        masks = [np.ones(counts.size, np.bool_) for counts in (user_counts, item_counts)]
        if self._earlier is not None:
            masks[0] = user_counts > 0
            masks[1] = masks[1] if self._unobserved else item_counts > 0  # missing pairs concern all items
        self._moved = masks
        # Rows that have only held-out ratings need a place, too.
        taking_part = [mask | bool(self._hold_out.threshold) for mask in masks]
        n_users, n_items = (int(mask.sum()) for mask in taking_part)
        n_items = int(np.count_nonzero(item_counts)) if self._ranks else n_items
        self.n_shards = self._choose_shards(n_users, n_items)
        n_blocks = self.n_shards if self._rotating else 1
        return deal(user_counts, self.n_shards, taking_part[0]), deal(item_counts, n_blocks, taking_part[1])

    def _shards_made_there(self) -> list[Source]:
        """Divide the ratings of this process among shards, which workers make from them."""
        [ratings], plan, users = self._pieces.partitions, self._place.lasting(self._plan), self._plan.users
        self._pieces.partitions = []
        split = zip(data.split_ratings(ratings, users, self.scale), users.members, strict=True)
        parts = [data.packed(part, len(members), self._shape[1]) for part, members in split]
        return [Source(partial(data.make_lone_shard, p), (plan, part), tells=True) for p, part in enumerate(parts)]

    def _make_shards(self) -> list[Any]:
        """Make the shards, and return them: values, or futures of them."""
        pieces, keep_seen = self._pieces, self._plan.keep_seen
        split = pieces.each(partial(data.split_ratings, users=self._plan.users, scale=self.scale), "mf-split-ratings")
        pieces.partitions = []  # from now on only the parts for shards are needed
        made = []
        for p in range(self.n_shards):
            parts = pieces.place.take(split, p, "mf-take-part")
            made += pieces.tasks(data.make_shard, [(p, self._plan, parts)], "mf-make-shard")
        self._seen = pieces.here(pieces.tasks(attrgetter("seen"), list(zip(made, strict=True)), "mf-seen"))
        return [one._replace(seen=None) for one in made] if keep_seen else made  # `seen` need not be sent again

    def _choose_shards(self, n_users: int, n_items: int) -> int:
        """Return the number of shards; of the number asked for, shards that would be empty are left out."""
        most = min(n_users, n_items if self._rotating else n_users)
        if self._rotating and self._ranks:
            most = min(most, n_items // data.ITEMS_TO_DRAW_FROM)
        if (asked := self._estimator.n_shards) is None:
            n_ratings = self._n_ratings
            chosen = data.rotating_shards(n_ratings) if self._gradients else data.summing_shards(n_ratings, n_items)
            return max(1, min(chosen, most)) if self._ranks else chosen
        chosen = max(1, min(int(asked), most))
        if chosen < asked:
            logger.info("n_shards=%d: %d users and %d items make %d", asked, n_users, n_items, chosen)
        return chosen

    def _add_counts(self, counted: data.Counted) -> tuple[NDArray[np.float32], ...]:
        """Return (n, 2) for users and items: clicks so far, and sums of weights; for ratings the sums twice."""
        weights, n_users = counted.confidences, self._shape[0]
        counts = counted.counts if self._unobserved else weights
        both = np.stack([counts, weights], axis=1).astype(np.float32)
        sides = both[:n_users], both[n_users:]
        for side, earlier in zip(sides, self._earlier_counts, strict=False):
            side[: len(earlier)] += earlier
        return sides

    @property
    def seen(self) -> SeenItems | None:
        """The items that each user has rated, if they are kept."""
        plan = self._plan
        return SeenItems(tuple(self._seen or ()), plan.users, plan.item_ids) if plan.keep_seen else None

    def _given_alpha(self) -> float | None:
        """Return the weight of the penalty, or None if it must be computed from these ratings."""
        if self._estimator.alpha != "auto":
            return float(self._estimator.alpha)
        return float(self._estimator.alpha_) if self._earlier is not None else self._alpha_of_clicks

    def _choose_alpha(self, counted: data.Counted) -> float:
        """Compute the weight of the penalty from these ratings."""
        sides = slice(None, self._shape[0]), slice(self._shape[0], None)
        counts, sums = ([array[side] for side in sides] for array in (counted.counts, counted.sums))
        return choose_alpha(self._estimator.penalty, counts, left_by_biases(counted.moments, counts, sums))

    def _choose_program(self) -> None:
        estimator, (mean, _), unit = self._estimator, self._measured, self.scale.unit
        common: dict[str, Any] = {
            "n_components": int(estimator.n_components),
            "mean": 0.0 if estimator.fit_bias or self._ranks else (mean - self.scale.mean) / unit,
            "penalty": self.alpha,
            "per_rating": estimator.penalty == "per_rating",
            "fit_bias": bool(estimator.fit_bias),
            "positive": bool(estimator.positive),
            "seed": self._seed,
            "unit": unit,
        }
        kind: Any = CcdFactorization
        if self._unobserved:
            anew = self._earlier is None and not estimator.positive  # centred items are not positive
            kind, own = ImplicitFactorization, {"fit_bias": False, "unobserved": self._unobserved, "anew": anew}
            common |= {"mean": 0.0, **own}
        elif self._gradients:
            kind = SgdFactorization if self._rotating else BspFactorization
            common |= {"learning_rate": float(estimator.learning_rate), "loss": estimator.loss}
            common |= {"evaluate_every": int(estimator.evaluate_every), "validates": bool(self._hold_out.threshold)}
        self._program = kind(**common)

    def _begin_from(self, earlier: Factors) -> Saved:
        """Return the state from which the run starts after an earlier fit."""
        plan, sides = self._plan, tuple(rescaled(side, 1 / self.scale.unit) for side in earlier[:2])
        counts = self._earlier_counts, plan.users.members, plan.item_ids, plan.item_counts[plan.item_ids]
        saved: Saved = self._program.begin_from(sides, *counts)
        return saved

    def _attributes(self, run: AnyRun) -> dict[str, Any]:
        return self._estimator._as_attributes(self._factors(run.harvest()), self)

    def _factors(self, harvest: Harvest) -> Factors:
        placed = zip(self._program.sides(harvest), (self._plan.users, self._plan.items), strict=True)
        users, items = (gather(sides, placement, self.scale.unit) for sides, placement in placed)
        if self._earlier is not None:
            for side, before, moved in zip((users, items), self._earlier[:2], self._moved, strict=True):
                kept = np.flatnonzero(~moved[: len(before.bias)])
                side.factors[kept], side.bias[kept] = before.factors[kept], before.bias[kept]
        return Factors(users, items, self.scale.mean)


def _digest(ids: NDArray[Any]) -> str:
    """Return a fingerprint of ids."""
    return hashlib.sha256("\0".join(map(str, ids)).encode() if is_text(ids) else ids.tobytes()).hexdigest()
