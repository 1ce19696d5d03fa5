"""What the tasks of a round are made of: a partition is updated, its result stays, and a partial result travels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from schmp_estimators.core.places.blas import one_blas_thread
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.values import align


class Held(NamedTuple):
    """A partition after a round, with the partial result of the round: one task makes both."""

    partition: Any
    partial: Any
    changed: bool


class Answer(NamedTuple):
    """What travels to the client: a partial result, or a sum of them, and whether a partition is another one now."""

    partial: Any
    changed: bool


class Kept:
    """The same in this process, where the partial result can be let go of as soon as it has been read."""

    __slots__ = ("partial", "partition")

    def __init__(self, partition: Any, partial: Any) -> None:
        self.partition, self.partial = partition, partial


def partition_of(held: Any) -> Any:
    """Return the partition, of what a round has left or of a partition itself."""
    return held.partition if isinstance(held, (Held, Kept)) else held


def update(function: Callable[..., Any], held: Any, job: Any) -> Kept:
    """Do a round in this process."""
    return Kept(*function(partition_of(held), job))


def update_there(function: Callable[..., Any], held: Any, job: Any) -> Held:
    """Do a round on a worker."""
    before = align(partition_of(held))
    with one_blas_thread():
        after, partial_result = function(before, align(job))
    return Held(after, partial_result, after is not before)


def answer_of(held: Held) -> Answer:
    """Return what travels."""
    return Answer(held.partial, held.changed)


def call(partition: Any, job: Callable[[Any], tuple[Any, Any]]) -> tuple[Any, Any]:
    """Return what the job makes of the partition."""
    return job(partition)


def sum_of(*answers: Answer) -> Answer:
    """Return the sum of answers."""
    return Answer(tree_sum([one.partial for one in answers]), any(one.changed for one in answers))


def as_it_is(partition: Any) -> Any:
    """Return the partition."""
    return partition


def save_of(save: Callable[[Any], Any], held: Any) -> Any:
    """Return what a keeper saves of a partition."""
    return save(partition_of(held))


def restored(restore: Callable[[Any, Any], Any], held: Any, saved: Any) -> Any:
    """Return what a keeper makes of a partition in its first form."""
    with one_blas_thread():
        return restore(partition_of(held), saved)
