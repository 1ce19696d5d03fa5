"""One fit of `ModelParallelMF`: how ratings become shards, which program runs, and what is kept of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from math import fsum, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from schmp_estimators.data.rating_rows import RatingRows
from schmp_estimators.data.ratings import (
    HoldOut,
    SeenItems,
    ShardPlan,
    Sums,
    count_ratings,
    make_shard,
    rotating_shards,
    split_ratings,
    summing_shards,
)
from schmp_estimators.engines.static import Source, StaticRun
from schmp_estimators.kernels.mf_layout import Placement, deal
from schmp_estimators.kernels.rng import stream_key
from schmp_estimators.programs.base import Harvest, Saved
from schmp_estimators.programs.mf_ccd import CcdFactorization
from schmp_estimators.programs.mf_sgd import SgdFactorization, Side
from schmp_estimators.runtime.base import Runtime

if TYPE_CHECKING:
    from schmp_estimators.estimators.mf import ModelParallelMF

logger = logging.getLogger(__name__)

#: Which stream of random numbers decides about held-out ratings; 0 and 1 are those of the factors.
_HOLD_OUT = 2


class Factors(NamedTuple):
    """A factorisation: what a fit returns and what a later one may start from."""

    users: Side
    items: Side
    mean: float


class MFFit:
    """A fit in progress.

    Parameters
    ----------
    estimator : ModelParallelMF
        Gets `history_` and `n_iter_` while the fit runs.
    ratings : RatingRows
        The ratings; their partitions are let go as soon as there are shards.
    runtime : Runtime
        Where to work.
    seed : int
    earlier : Factors, optional
        Where to start.
    """

    def __init__(
        self,
        estimator: ModelParallelMF,
        ratings: RatingRows,
        runtime: Runtime,
        *,
        seed: int,
        earlier: Factors | None = None,
    ) -> None:
        self._estimator, self._pieces, self._runtime = estimator, ratings.pieces, runtime
        self._seed, self._earlier = seed, earlier
        known = (len(earlier.users.bias), len(earlier.items.bias)) if earlier else (0, 0)
        self._shape = max(ratings.n_users, known[0]), max(ratings.n_items, known[1])
        fraction = float(estimator.validation_fraction) if estimator.early_stopping else 0.0
        self._hold_out = HoldOut(stream_key(seed, _HOLD_OUT), np.uint64(fraction * 2.0**64))
        self._rotating = estimator.solver == "sgd"

    def run(self, X: Any, y: Any) -> Factors:
        """Factorise, and return the factors: the last, or with early stopping the best."""
        estimator = self._estimator
        sources, sums = self._make_shards()
        n_ratings = sum(one.size for one in sums)
        self._program = self._choose_program(sums, n_ratings)
        best, best_error = None, np.inf
        with StaticRun(
            self._program, sources, self._runtime, n_sweeps=estimator.max_iter, saved=self._restored()
        ) as run:
            snapshot = partial(self._attributes, run)
            for _ in estimator._follow(run, X, y, first=0, n_samples=n_ratings, snapshot=snapshot):
                error = estimator.history_[-1].get("validation_rmse", np.inf)
                if error < best_error:
                    best, best_error = self._factors(run.harvest()), error
            return best or self._factors(run.harvest())

    def _make_shards(self) -> tuple[list[Source], list[Sums]]:
        """Deal the ratings to shards; return where the engine gets them from, and their sums."""
        pieces, (n_users, n_items) = self._pieces, self._shape
        count = partial(count_ratings, n_users=n_users, n_items=n_items, hold_out=self._hold_out)
        counts = pieces.reduce(count, _add, "mf-count-ratings")
        user_counts, item_counts = self._user_counts, _ = counts[:n_users], counts[n_users:]
        choose = rotating_shards if self._rotating else summing_shards
        self.n_shards = self._estimator.n_shards or choose(int(user_counts.sum()))
        users, items = deal(user_counts, self.n_shards), deal(item_counts, self.n_shards)
        here = pieces.client is None
        self._plan = ShardPlan(users, items, item_counts, self._hold_out, self._rotating, keep_seen=here)
        split = pieces.each(partial(split_ratings, users=users), "mf-split-ratings")
        pieces.partitions = []  # what the shards are made of is all that is needed from now on
        made = []
        for p in range(self.n_shards):
            parts = pieces.tasks(_take, [(one, p) for one in split], "mf-take-part")
            if here:  # let them go as soon as the shard has been made
                for one in split:
                    one[p] = None
            made += pieces.tasks(make_shard, [(p, self._plan, parts)], "mf-make-shard")
        sums = pieces.here(pieces.tasks(_take, [(one, 0) for one in made], "mf-take-sums"))
        if not sum(one.size for one in sums):
            raise ValueError("there are no ratings to fit; X must store, or y hold, at least one")
        self.seen = SeenItems(tuple(one.seen for one in made), users) if here else None
        return [Source(_take_shard, (one,)) for one in made], sums

    def _choose_program(self, sums: Sequence[Sums], n_ratings: int) -> SgdFactorization | CcdFactorization:
        estimator = self._estimator
        mean = fsum(one.total for one in sums) / n_ratings
        variance = fsum(one.squares for one in sums) / n_ratings - mean * mean
        mean = mean if self._earlier is None else self._earlier.mean
        common: dict[str, Any] = {
            "n_components": int(estimator.n_components),
            "mean": mean,
            # Equal ratings have no spread; a step of any size will do for them.
            "scale": sqrt(variance) if variance > 1e-12 * max(1.0, mean * mean) else 1.0,
            "penalty": float(estimator.alpha),
            "per_rating": estimator.penalty == "per_rating",
            "fit_bias": bool(estimator.fit_bias),
            "positive": bool(estimator.positive),
            "seed": self._seed,
        }
        if not self._rotating:
            return CcdFactorization(n_items=self._shape[1], **common)
        return SgdFactorization(
            **common,
            learning_rate=float(estimator.learning_rate),
            evaluate_every=int(estimator.evaluate_every),
            validates=bool(self._hold_out.threshold),
        )

    def _restored(self) -> Saved | None:
        """Return what the run starts from, if that is an earlier fit."""
        earlier, plan = self._earlier, self._plan
        if earlier is None:
            return None
        if isinstance(self._program, CcdFactorization):
            # The first round makes the users anew.
            return Saved(self._program.restore(earlier.items, plan.item_counts), [None] * self.n_shards, [])
        restore = self._program.restore
        users = [restore(earlier.users, ids, self._user_counts[ids], False) for ids in plan.users.members]
        items = [restore(earlier.items, ids, plan.item_counts[ids], True) for ids in plan.items.members]
        return Saved(None, users, items)

    def _attributes(self, run: StaticRun) -> dict[str, Any]:
        return self._estimator._as_attributes(self._factors(run.harvest()), self.n_shards)

    def _factors(self, harvest: Harvest) -> Factors:
        program = self._program
        users = _gather(harvest.shards, self._plan.users)
        if isinstance(program, CcdFactorization):
            items = program.side(harvest.model.items, is_item=True)
        else:
            items = _gather(harvest.blocks, self._plan.items)
        return Factors(users, items, program.mean if program.fit_bias else 0.0)


def _gather(sides: Sequence[Side], placement: Placement) -> Side:
    """Return the rows of all groups in the order of the data."""
    order = np.argsort(np.concatenate(placement.members), kind="stable")
    return Side(*(np.concatenate(parts)[order] for parts in zip(*sides, strict=True)))


def _add(counts: list[Any]) -> Any:
    return np.sum(counts, axis=0)


def _take(values: Any, position: int) -> Any:
    return values[position]


def _take_shard(made: Any) -> Any:
    """Return the shard without its sums."""
    return made.shard
