"""A stage of a sweep: a function of the program, and the order of its calls on shards and blocks.

- *reads*: the function gets a shard and a block, and changes the state of the shard.
- *changes*: the same, but it also changes the block, which is then sent to the next shard.
- *exchanges*: every shard gets a piece of all states, works on them together, and answers; there
  are no blocks.
- *each*: the function gets one shard; the stage ends with `Program.aggregate`, the barrier of a
  sweep.
- *observes*: every shard reports, and nothing is changed; the stage ends with `Program.aggregate`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from inspect import signature
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from schmp_estimators.core.typing import Arguments, Binary, Function, Unary
from schmp_estimators.core.values import freeze

#: ``order[step][shard]`` is the block that the shard meets in this step, or -1 for none.
Lines = Iterable[Sequence[int]]
Order = tuple[tuple[int, ...], ...]


#: Applies a function to jobs, perhaps with several threads; the results are in the order of the
#: jobs.
Each = Callable[[Unary, Iterable[Any]], list[Any]]


def in_turn(function: Unary, jobs: Iterable[Any]) -> list[Any]:
    """Apply `function` to every job, one after the other: the simplest `Each`."""
    return list(map(function, jobs))


class At(NamedTuple):
    """Where a function of a program is called, and what it may read there."""

    shard: Any
    #: None before the first `Program.aggregate` and in a `split` function; in `Program.restore`,
    #: the saved model, if there is one.
    model: Any
    #: In `Program.init` and `Program.restore`, the number of the sweep before the first one.
    sweep: int
    #: Number of the shard.
    number: int
    n_shards: int
    #: Number of the block that the shard meets, or -1 if it meets none.
    block: int = -1
    n_blocks: int = 0
    #: Whether the shard meets no further block in this stage.
    is_last: bool = True
    #: ``each(function, jobs)`` returns ``[function(job) for job in jobs]``, perhaps with several
    #: threads.
    each: Each = in_turn
    #: Whether `Program.save` will be called after the sweep, as far as that is known; no result may
    #: depend on it.
    saves: bool = False


Split = Callable[[At, Any], Sequence[Any]]


class Stage(NamedTuple):
    """One stage; made by `reads`, `changes`, `exchanges`, `each` or `observes`."""

    kind: Literal["reads", "changes", "exchanges", "each", "observes"]
    function: Function
    args: Arguments = ()
    order: Order | None = None
    #: Whether every step ends with `Program.aggregate`.
    synced: bool = False
    #: Whether the function returns parts, from which `Program.combine` makes all blocks again.
    parts: bool = False
    #: Whether the function returns the report itself, instead of `Program.report`.
    reports: bool = False
    #: Joins the reports of two neighbouring shards to one.
    merge: Binary | None = None
    #: Cuts a state into a piece for each shard.
    split: Split | None = None
    #: Does the same as the function for many visits, one after the other.
    together: Function | None = None

    @property
    def name(self) -> str:
        """Name of the stage on the dashboard."""
        return name_of(self.function).strip("_").replace("_", "-")


def reads(
    function: Function,
    *args: Any,
    order: Lines,
    synced: bool = False,
) -> Stage:
    """Return a stage that calls a function for each shard with one block after the other.

    The function reads the block, and changes the state of the shard.  `Program` explains shards,
    blocks and stages.

    Parameters
    ----------
    function : method of the program
        ``function(at, state, block, *args)`` returns the state, and with `synced` also a report.
        The function may write into the state.  The block is read-only.
    *args : object
        Further arguments of the function.
    order : sequence of sequences of int
        ``order[step][shard]`` is the index of the block that the shard gets in this step, or -1 if
        it gets none.  `schedule_rotation` returns such an order.
    synced : bool, default=False
        Whether every step ends with `Program.aggregate`, so that the next step reads the new model.

    Returns
    -------
    Stage
        For `Program.schedule`.
    """
    return Stage("reads", function, args, _as_order(order), synced)


def changes(
    function: Function,
    *args: Any,
    order: Lines,
    synced: bool = False,
    together: Function | None = None,
) -> Stage:
    """Return a stage that calls a function for each shard with one block after the other.

    The function changes both the state of the shard and the block.  `Program` explains shards,
    blocks and stages.

    Parameters
    ----------
    function : method of the program
        ``function(at, state, block, *args)`` returns the state and the block, and with `synced`
        also a report.  It may write into the state and the block.  Unless the stage is `synced`,
        the block is sent to the next shard without waiting for other blocks.
    *args, order, synced
        As in `reads`.
    together : method of the program, optional
        ``together(ats, states, blocks, visits, *args)`` does the work of many calls of `function`
        in one call, which is faster if there are many small shards.  ``visits`` lists these calls
        as (step, shard, block), in an order in which they may be done.  ``ats`` and ``states`` are
        dicts by the index of the shard, and ``blocks`` is a dict by the index of the block.
        `together` changes states and blocks in place.  It cannot be combined with `synced`.

    Returns
    -------
    Stage
        For `Program.schedule`.

    Raises
    ------
    ValueError
        If both `synced` and `together` are given.
    """
    if synced and together:
        raise ValueError("changes: give synced, for a barrier after every step, or together")
    return Stage("changes", function, args, _as_order(order), synced=synced, together=together)


def exchanges(
    function: Function,
    *args: Any,
    split: Split,
) -> Stage:
    """Return a stage in which every shard sends a piece of its state to every shard.

    A function of the program works on the pieces that a shard has received, and returns an answer
    to every shard.  `Program` explains shards and stages.

    The next stage must be made by `each`.  In that stage, the function receives the answers to its
    shard as third argument, in shard order.

    Parameters
    ----------
    function : method of the program
        ``function(at, pieces, *args)`` returns a list with an answer to every shard.  ``at.shard``
        is the shard that has received the pieces.  `pieces` has one piece from every shard, in the
        order of the shards.  Both are read-only.
    *args : object
        As in `reads`.
    split : method of the program
        ``split(at, state)`` returns a list with a piece for every shard, preferably as views of the
        state.  ``at.model`` is None here, since the model may not have been aggregated yet.

    Returns
    -------
    Stage
        For `Program.schedule`.
    """
    return Stage("exchanges", function, args, split=split)


def each(
    function: Function,
    *args: Any,
    parts: bool = False,
    reports: bool = False,
    merge: Binary | None = None,
) -> Stage:
    """Return a stage that calls a function for each shard, and ends with `Program.aggregate`.

    `Program` explains shards and stages.

    Parameters
    ----------
    function : method of the program
        ``function(at, state, *args)`` returns the state, with `parts` also the parts, and with
        `reports` also the report.  The function may write into the state.  After a stage made by
        `exchanges`, it is called as ``function(at, state, answers, *args)``.
    *args : object
        As in `reads`.
    parts : bool, default=False
        Whether the function also returns a dict with parts of blocks, by the index of the block.
        `Program.combine` then makes all blocks anew from these parts.
    reports : bool, default=False
        Whether the function also returns the report of the shard.  Otherwise, `Program.report`
        makes it.
    merge : method of the program, optional
        ``merge(report, other)`` joins the reports of two neighbouring shards into one, and does not
        write into them.  Reports may be merged in a binary tree on their way to
        `Program.aggregate`.  The model must be the same with and without merging.  So `merge` may
        add integers.  It may add floats only if `aggregate` sums the reports with `tree_sum`, which
        adds in the same order.

    Returns
    -------
    Stage
        For `Program.schedule`.
    """
    return Stage("each", function, args, parts=parts, reports=reports, merge=merge)


def observes(
    function: Function,
    *args: Any,
    order: Lines | None = None,
    merge: Binary | None = None,
    split: Split | None = None,
) -> Stage:
    """Return a stage in which shards only report, and which ends with `Program.aggregate`.

    The function changes nothing.  `Program` explains shards and stages.

    Parameters
    ----------
    function : method of the program
        ``function(at, state, *args)`` returns a report, and may not write into its arguments.  With
        `order`, it is called as ``function(at, state, block, *args)``, and with `split` as
        ``function(at, state, pieces, *args)``.
    *args : object
        As in `reads`.
    order : sequence of sequences of int, optional
        As in `reads`.  `Program.aggregate` gets the reports of the first shard, in the order of its
        steps, then those of the second, and so on.
    merge : method of the program, optional
        As in `each`.
    split : method of the program, optional
        As in `exchanges`.  Every shard then receives a piece of every shard's state.

    Returns
    -------
    Stage
        For `Program.schedule`.

    Raises
    ------
    ValueError
        If both `order` and `split` are given.
    """
    if order is not None and split is not None:
        raise ValueError(
            "observes: give order, to see blocks, or split, to see pieces of all states, not both"
        )
    return Stage(
        "observes",
        function,
        args,
        None if order is None else _as_order(order),
        merge=merge,
        split=split,
    )


def _as_order(order: Lines) -> Order:
    return tuple([tuple(map(int, line)) for line in order])


def for_all(function: Callable[..., Sequence[Any]], at: At, *args: Any) -> Sequence[Any]:
    """Call a method of a program that returns a value for each shard; return them, frozen.

    Raises
    ------
    ValueError
        If there is not one value for each shard.
    """
    found = freeze(list(function(at, *args)))
    if len(found) != at.n_shards:
        raise ValueError(
            f"{name_of(function)} returned a list of {len(found)} for {at.n_shards} shards; it "
            "must have one for each"
        )
    return found


class Returned(NamedTuple):
    """What the function of a stage has returned, by name; None for what it does not return."""

    state: Any = None
    parts: Any = None
    block: Any = None
    report: Any = None


def unpack(stage: Stage, made: Any) -> Returned:
    """Return what the function of a stage made by `reads`, `changes` or `each` has returned.

    Raises
    ------
    TypeError
        If it has returned something else.
    """
    named = ["state"]
    if stage.parts:
        named.append("parts")
    if stage.kind == "changes":
        named.append("block")
    if stage.reports or stage.synced:
        named.append("report")
    if len(named) == 1:
        found = [made]
    else:
        found = list(made) if type(made) in (tuple, list) and len(made) == len(named) else []
    if not found or found[0] is None:
        what = f"({', '.join(named)})" if len(named) > 1 else "the state"
        raise TypeError(
            f"{name_of(stage.function)} returned {described(made)}; in a stage made by "
            f"{stage.kind} it returns {what}"
        )
    return Returned(**dict(zip(named, found, strict=True)))


def described(made: Any) -> str:
    """Describe in words what a function has returned, for an error."""
    if made is None:
        return "None"
    if type(made) in (tuple, list):
        return f"a {type(made).__name__} of {len(made)}" + (
            ", None first" if made and made[0] is None else ""
        )
    return f"one {type(made).__name__}"


def checked(made: Any, function: Function, job: Any) -> tuple[Any, Any]:
    """Return what a function has returned for a partition and a job.

    The job may be a function itself.

    Raises
    ------
    TypeError
        If this is not a partition and an answer.
    """
    if type(made) in (tuple, list) and len(made) == 2:
        return made[0], made[1]
    name = name_of(job if callable(job) else function)
    raise TypeError(f"the job {name} returned {described(made)}; a job returns (piece, answer)")


@contextmanager
def naming(program: Any, method: str, sweep: int, *where: str) -> Iterator[None]:
    """Say in an error which method of a program has raised it, in which sweep and where."""
    try:
        yield
    except Exception as error:
        when = f"sweep {sweep}" if sweep >= 0 else "before the first sweep"
        error.add_note(f"in {type(program).__name__}.{', '.join((method, when, *where))}")
        raise


def check_call(function: Any, what: str, *names: str) -> None:
    """Raise TypeError if a function cannot be called with arguments of these names.

    They are given by their places.
    """
    if not callable(function):
        raise TypeError(f"{what} is {function!r}; it must be a method")
    try:
        found = signature(function)
    except ValueError:  # of some functions in C
        return
    try:
        found.bind(*names)
    except TypeError as error:
        raise TypeError(
            f"{what} is called as {what}({', '.join(names)}), and defined with {found}: {error}"
        ) from None


def name_of(call: Any) -> str:
    """Return the name of a function, or of the function in a `partial`.

    For other objects it is the name of their type.
    """
    call = getattr(call, "func", call)
    name: str = getattr(call, "__name__", type(call).__name__)
    return name


def check_stages(program: Any, stages: Any, n_shards: int, n_blocks: int) -> tuple[Stage, ...]:
    """Check the stages of one sweep, and return them as a tuple.

    Raises
    ------
    TypeError, ValueError
        If one of them is no stage or is wrong; the message says which, and why.
    """
    found = (stages,) if isinstance(stages, Stage) else tuple(stages)
    for stage in found:
        if not isinstance(stage, Stage):
            raise TypeError(
                f"schedule: {stage!r} is no stage; make one with reads, changes, exchanges, each "
                "or observes"
            )
        _check_stage(program, stage, n_shards, n_blocks)
    if not found or found[-1].kind not in ("each", "observes"):
        raise ValueError(
            "schedule: the last stage of a sweep must be each or observes, so that it ends in "
            "aggregate"
        )
    for stage, following in pairwise(found):
        if stage.kind == "exchanges" and following.kind != "each":
            raise ValueError(
                f"schedule: stage {stage.name!r} exchanges pieces of states, so the next stage "
                f"must be each, not {following.kind}({following.name!r})"
            )
    return found


def check_signatures(program: Any, stages: Sequence[Stage]) -> None:
    """Raise TypeError if a function of stages has other arguments than it is called with.

    The stages have been checked.
    """
    brought: tuple[str, ...] = ()
    for stage in stages:
        first = ("at", "pieces") if stage.kind == "exchanges" else ("at", "state", *brought)
        if stage.order is not None:
            first = (*first, "block")
        elif stage.split and stage.kind == "observes":
            first = (*first, "pieces")
        further = [f"args[{i}]" for i in range(len(stage.args))]
        calls = [
            (stage.function, (*first, *further)),
            (stage.merge, ("report", "other")),
            (stage.together, ("ats", "states", "blocks", "visits", *further)),
            (stage.split, ("at", "state")),
        ]
        for function, names in calls:
            if function is not None:
                check_call(function, f"{type(program).__name__}.{name_of(function)}", *names)
        brought = ("answers",) if stage.kind == "exchanges" else ()


def _check_stage(program: Any, stage: Stage, n_shards: int, n_blocks: int) -> None:
    name = stage.name
    helpers = [helper for helper in (stage.merge, stage.split, stage.together) if helper]
    for function in (stage.function, *helpers):
        if getattr(function, "__self__", None) is not program:
            raise TypeError(
                f"schedule: {function!r} must be a method of {type(program).__name__}, as in "
                f"self.{name}"
            )
    if stage.order is not None:
        what = f"schedule: the order of {stage.kind}({name!r})"
        _check_order(what, stage.order, stage.synced, n_shards, n_blocks)


@lru_cache(maxsize=64)  # most sweeps of a run have the same orders
def _check_order(what: str, order: Order, synced: bool, n_shards: int, n_blocks: int) -> None:
    met: list[list[int]] = [[] for _ in range(n_shards)]
    for step, line in enumerate(order):
        if len(line) != n_shards:
            raise ValueError(
                f"{what} has {len(line)} entries in step {step}; there are {n_shards} shards"
            )
        busy = [block for block in line if block >= 0]
        if len(set(busy)) < len(busy):
            raise ValueError(
                f"{what} lets two shards meet the same block in step {step}: {line}; never let them"
            )
        if not -1 <= min(line) <= max(line) < n_blocks:
            numbers = f"blocks are 0 to {n_blocks - 1}" if n_blocks else "n_blocks returns 0"
            raise ValueError(
                f"{what} has a number that is no block in step {step}: {line}; {numbers}, and -1 "
                "is none"
            )
        if synced and len(busy) < n_shards:
            raise ValueError(
                f"{what} leaves a shard idle in step {step}, whose report the barrier would wait "
                "for"
            )
        for shard, block in enumerate(line):
            if block >= 0:
                met[shard].append(block)
    for shard, blocks in enumerate(met):
        if len(set(blocks)) < len(blocks):
            raise ValueError(
                f"{what} lets shard {shard} meet a block twice: {blocks}; use two stages"
            )
