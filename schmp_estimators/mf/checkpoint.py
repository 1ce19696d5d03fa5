"""What is to be made of the values in a checkpoint of `ModelParallelMF`."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators import __version__
from schmp_estimators.core.io.checkpoint import check_array, check_history, check_sweeps
from schmp_estimators.core.lanes import LANES, padded_width
from schmp_estimators.core.program import Saved, identity, restore_types
from schmp_estimators.mf.data.ratings import MadeShard, ShardPlan, SortedShard, hash_shard
from schmp_estimators.mf.kernels.sgd import FactorBlock
from schmp_estimators.mf.programs.bsp import BspFactorization
from schmp_estimators.mf.programs.ccd import CcdFactorization
from schmp_estimators.mf.programs.factors import Side
from schmp_estimators.mf.programs.implicit import ImplicitFactorization
from schmp_estimators.mf.programs.sgd import SgdFactorization


class Described(NamedTuple):
    """What the client must know of a shard to recognise its checkpoint."""

    digest: str
    #: Ratings to fit and to hold out, where the shard is not cut into blocks.
    sizes: tuple[int, int]


class Sizes(NamedTuple):
    """How much of everything there is."""

    #: Users of each shard.
    users: Sequence[int]
    #: Ratings of each shard, as in `Described`.
    ratings: Sequence[tuple[int, int]]
    #: Items of each block, or of all together where they are not divided.
    items: Sequence[int]


class Restored(NamedTuple):
    """A fit that goes on."""

    done: int
    saved: Saved
    history: list[dict[str, Any]]
    #: Users, items and mean of the best factors so far, where there are any.
    best: tuple[Side, Side, float] | None


def describe_shard(made: MadeShard) -> Described:
    """Describe a shard; runs where the shard is."""
    shard, sizes = made.shard, (0, 0)
    if isinstance(shard, SortedShard):
        sizes = shard.train.values.size, shard.held_out.values.size
    return Described(hash_shard(made), sizes)


def sizes_of(plan: ShardPlan, shards: Sequence[Described]) -> Sizes:
    """Return the sizes of a fit whose shards were described."""
    users, items = ([len(ids) for ids in side.members] for side in (plan.users, plan.items))
    return Sizes(users, [shard.sizes for shard in shards], items)


def fingerprint(
    estimator: str, shards: Sequence[Described], others: str, program: Any, n_shards: int
) -> dict[str, Any]:
    """Return what must be alike for a checkpoint to be a fit's own; `others` is what else the factors belong to."""
    return {
        "estimator": estimator,
        "version": __version__,
        "data": hashlib.sha256("".join([*(shard.digest for shard in shards), others]).encode()).hexdigest(),
        **identity(program),
        "n_shards": n_shards,
    }


def restore(
    values: Any,
    *,
    url: str | os.PathLike[str],
    max_iter: int,
    program: SgdFactorization | CcdFactorization,
    sizes: Sizes,
) -> Restored:
    """Check what was read.

    Parameters
    ----------
    values : nested lists and dicts
        Those of a fit, through a file.
    url : str or path-like
        That of the checkpoint, for messages.
    max_iter : int
        Number of epochs of this fit.
    program : SgdFactorization, BspFactorization or CcdFactorization
        That of this fit.
    sizes : Sizes
        Those of this fit.

    Raises
    ------
    CheckpointMismatchError
        If more epochs are done than this fit is to have.
    Exception
        If the values are not those of such a fit.
    """
    done, history, best = values["done"], values["history"], values["best"]
    check_history(history, done)
    check_sweeps(url, done, max_iter)
    if not all("running_rmse" in record for record in history):
        raise ValueError("the history has no errors")
    saved = restore_types(program, values["saved"])
    n_shards = len(sizes.users)
    if len(saved.shards) != n_shards:
        raise ValueError(f"{len(saved.shards)} shards instead of {n_shards}")
    check_array("errors", saved.model.errors, (3,), np.float64)
    check_array("sizes", saved.model.sizes, (2,), np.int64, 0)
    if isinstance(program, CcdFactorization):
        _check_ccd(saved, program, sizes)
    else:
        blocks = [saved.model.items] if isinstance(program, BspFactorization) else saved.blocks
        for rows, n in zip([*saved.shards, *blocks], [*sizes.users, *sizes.items], strict=True):
            _check_rows(rows, n, program.n_components)
    if best is not None:
        users, items, mean = best
        best = (Side(*users), Side(*items), mean)
        _check_side(best[0], sum(sizes.users), program.n_components)
        _check_side(best[1], sum(sizes.items), program.n_components)
        if type(mean) is not float or not math.isfinite(mean):
            raise ValueError(f"a mean of {mean!r}")
    return Restored(done, saved, history, best)


def _check_rows(rows: FactorBlock, n: int, n_components: int) -> None:
    check_array("factors", rows.factors, (n, padded_width(n_components)), np.float32)
    for name in ("biases", "norms", "squares", "bias_squares", "penalties"):
        check_array(name, getattr(rows, name), (n,), np.float32)
    check_array("counts", rows.counts, (n,), np.int64, 0)


def _check_side(side: Side, n: int, n_components: int) -> None:
    shapes = {"factors": (n, n_components), "bias": (n,)}
    for name, shape in shapes.items():
        check_array(name, getattr(side, name), shape, np.float32)


def _check_ccd(saved: Saved, program: CcdFactorization, sizes: Sizes) -> None:
    [n_items], n_shards = sizes.items, len(sizes.users)
    check_array("items", saved.model.items, (n_items, 2 * LANES), np.float32)
    check_array("item counts", saved.model.item_counts, (n_items,), np.int64, 0)
    if isinstance(program, ImplicitFactorization):
        size = program.n_chunks * LANES
        for gram in (saved.model.user_gram, saved.model.item_gram):
            check_array("products", gram, (size, size), np.float64)
    if type(saved.model.penalty) is not float:
        raise ValueError(f"a penalty of {saved.model.penalty!r}")
    for p, (state, n_users, (n, n_held_out)) in enumerate(zip(saved.shards, sizes.users, sizes.ratings, strict=True)):
        n_chunks = len(range(p, program.n_chunks, n_shards))
        check_array("users", state.users, (program.n_chunks, n_users, LANES), np.float32)
        check_array("items", state.items, (n_chunks, n_items, LANES), np.float32)
        check_array("residuals", state.residuals, (n,), np.float32)
        check_array("held-out residuals", state.tested, (n_held_out,), np.float32)
