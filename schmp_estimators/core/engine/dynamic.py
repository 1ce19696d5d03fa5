"""The dynamic engine: a program chooses its next job from the present model.

The engine knows no statistics.

A program has one of two forms (Kim et al., EuroSys 2016, section 3.3.2).  A *coroutine* is a
generator that yields jobs and gets their partial results; its local variables are the state of the
algorithm.  For rounds that overlap, schedule, update and aggregate are separate methods
(`Overlapping`).  With `pipeline_depth` d up to d jobs are under way, and each is chosen without the
results of the others, so such a program checks new jobs against those in flight.
"""

from collections import deque
from collections.abc import Callable, Generator
from contextlib import nullcontext
from typing import Any, NamedTuple, Protocol, TypeVar

from schmp_estimators.core.io.checkpoint import refusing_damage
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.stages import check_call, name_of
from schmp_estimators.core.typing import Function, Named

F = TypeVar("F", bound=Function)


class PlaceOfRounds(Protocol):
    """What the dynamic engine asks of the place where partitions live."""

    def submit(self, function: Function, job: Any, *, is_sum: bool = False) -> Any:
        """Apply function(partition, job) to every partition; return a ticket.

        The new partitions are kept.

        With `is_sum` only the sum of the partial results is needed, so they may be added up on
        their way.
        """

    def collect(self, ticket: Any) -> list[Any]:
        """Return the partial results of a ticket, in partition order."""


def run_rounds(program: Any, model: Any, place: PlaceOfRounds, pipeline_depth: int = 1) -> None:
    """Run a program of `Overlapping` rounds until it has no further job."""
    name = type(program).__name__
    check_call(program.schedule, f"{name}.schedule", "model")
    check_call(program.update, f"{name}.update", "piece", "job")
    check_call(program.aggregate, f"{name}.aggregate", "model", "job", "answers")
    in_flight: deque[tuple[Any, Any]] = deque()
    while True:
        while len(in_flight) < pipeline_depth:
            job = program.schedule(model)
            if job is None:
                break
            in_flight.append((job, place.submit(program.update, job)))
        if not in_flight:
            return
        job, ticket = in_flight.popleft()
        program.aggregate(model, job, place.collect(ticket))


class Save(NamedTuple):
    """A coroutine (see `run`) yields this to save a state from which it can continue.

    When it continues, the pieces of data are as they were when the state was saved.

    Parameters
    ----------
    state : dict or named tuple
        All that the coroutine needs to continue: arrays, numbers, and tuples, lists and dicts of
        them.  The state is copied, so the program may change it later.  The decorator `saves`
        declares the type of states.
    last : bool, default=False
        Whether this may be the last state of the run.  If True, the state is always written,
        whatever ``checkpoint_every`` is.
    """

    state: Any
    last: bool = False


class Report(NamedTuple):
    """A coroutine (see `run`) yields this to report progress.

    The answer is True if the `callback` of the run asks the coroutine to end.

    Parameters
    ----------
    record : dict
        Numbers by name.
    """

    record: Named


class Sum(NamedTuple):
    """A coroutine (see `run`) yields this with a job to receive the sum of all pieces' answers.

    On a cluster, the workers add up the answers in a tree, so that only one sum is sent to the
    client.  It is bit-for-bit the result of `tree_sum`.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators.schmp import Sum, run
    >>> def squares(piece):
    ...     return piece, float(piece @ piece)
    >>> def energy(state):
    ...     return (yield Sum(squares))
    >>> run(energy, [np.ones(3), np.arange(3.0)])[1]
    8.0
    """

    #: a function of a piece, as any job
    job: Any


class Overlapping(NamedTuple):
    """A coroutine (see `run`) yields this to run several jobs at a time, until none is left.

    With a `pipeline_depth` above 1, jobs are chosen before earlier jobs are answered, so the model
    lacks some answers.  Which answers it lacks does not depend on timing.

    Parameters
    ----------
    program : object
        Object with three methods.  ``schedule(model)`` returns the next job, or None if there is no
        further job or the next one has to wait for an answer.  ``update(piece, job)`` is a pure
        static method, and returns the piece, possibly changed, and an answer.
        ``aggregate(model, job, answers)`` updates the model with the answers of all pieces, in
        order.
    model : object
        The model, which `schedule` and `aggregate` receive.  `aggregate` changes it in place.
    pipeline_depth : int, default=1
        Number of jobs that run at the same time.

    Examples
    --------
    Each of three jobs adds up one number from each piece, and two jobs run at the same time:

    >>> import numpy as np
    >>> from schmp_estimators.schmp import Overlapping, run
    >>> class Sums:
    ...     def schedule(self, model):
    ...         model["sent"] += 1
    ...         return model["sent"] if model["sent"] <= 3 else None
    ...
    ...     @staticmethod
    ...     def update(piece, job):
    ...         return piece, piece[job]
    ...
    ...     def aggregate(self, model, job, answers):
    ...         model["sums"].append(int(sum(answers)))
    >>> def program(state):
    ...     model = {"sent": 0, "sums": []}
    ...     yield Overlapping(Sums(), model, pipeline_depth=2)
    ...     return model["sums"]
    >>> run(program, [np.arange(5), 10 * np.arange(5)])[1]
    [11, 22, 33]
    """

    program: Any
    model: Any
    pipeline_depth: int = 1


#: What a coroutine yields is a `Save`, a `Report`, `Overlapping` rounds, or a job: a pure function
#: of a partition that returns the partition with its new state, and a partial result.  The answer
#: to a job is the list of partial results.
Steps = Generator[Any, Any, Any]


#: A function that begins a run: with None, or with a state that an earlier run has saved.
Coroutine = Callable[[Any], Steps]


def saves(kind: type) -> Callable[[F], F]:
    """Declare the type of states in `Save`; a coroutine that yields `Save` needs this decorator.

    Parameters
    ----------
    kind : type
        dict, or a named tuple.

    Returns
    -------
    callable
        A decorator.  If the coroutine is an object, set its attribute ``saves`` to the type
        instead.

    Raises
    ------
    TypeError
        If `kind` is another type.

    Examples
    --------
    >>> from schmp_estimators.schmp import Save, run, saves
    >>> @saves(dict)
    ... def count(state):
    ...     done = state["done"] if state else 0
    ...     while done < 3:
    ...         answers = yield lambda piece: (piece, len(piece))
    ...         done += 1
    ...         yield Save({"done": done}, last=done == 3)
    ...     return done
    >>> run(count, [[1, 2], [3]])
    ([], 3)
    """
    if not issubclass(kind, dict) and not hasattr(kind, "_fields"):
        raise TypeError(f"a coroutine saves a dict or a named tuple, not {kind.__name__}")

    def declare(program: F) -> F:
        program.saves = kind  # type: ignore[attr-defined]
        return program

    return declare


def saved_type(program: Coroutine) -> type | None:
    """Return the type of state that a coroutine has declared with `saves`, or None.

    It may be a `partial` of a coroutine.
    """
    kind: type | None = getattr(getattr(program, "func", program), "saves", None)
    return kind


def check_saves(program: Coroutine) -> None:
    """Raise ValueError if the program does not declare that it saves its state."""
    if saved_type(program) is None:
        raise ValueError(
            f"checkpoint needs a program that saves its state, which {name_of(program)} does not: "
            "let it yield Save(state) at its outer step, and declare the type of the state with "
            "@saves"
        )


def run_coroutine(
    program: Coroutine,
    place: PlaceOfRounds,
    state: Any = None,
    *,
    report: Callable[[Named], bool | None] | None = None,
    save: Callable[[Save], None] | None = None,
) -> Any:
    """Run a coroutine to its end, and return its result.

    Parameters
    ----------
    program : callable
        Returns the steps of the run.
    place : PlaceOfRounds
        Where the partitions are.  If the run continues, they are as they were when `state` was
        saved.
    state : object, optional
        State from which to continue.
    report : callable, optional
        Called with each record; True ends the run.
    save : callable, optional
        Called with each `Save`.

    Raises
    ------
    TypeError
        If the program yields something else, or saves a state of a type that it has not declared.
    """
    steps = program(state)
    kind = saved_type(program)
    if not isinstance(steps, Generator):
        raise TypeError(
            f"{name_of(program)} returns {steps!r}, which is no generator; let it yield its jobs"
        )
    answer: Any = None
    what = "is no state that this run can continue from"
    beginning = nullcontext() if state is None else refusing_damage("what was saved", what)
    try:
        while True:
            with beginning:
                try:
                    step = steps.send(answer)
                except StopIteration as end:
                    return end.value
            beginning = nullcontext()
            answer = None
            match step:
                case Save():
                    if kind is None or not isinstance(step.state, kind):
                        declared = "no state" if kind is None else kind.__name__
                        raise TypeError(
                            f"{name_of(program)} saves a {type(step.state).__name__}, and has "
                            f"declared {declared}"
                        )
                    if save is not None:
                        save(step)
                case Report(record):
                    answer = report is not None and bool(report(record))
                case Overlapping(overlapping, model, depth):
                    run_rounds(overlapping, model, place, depth)
                case _:
                    answer = _answer(program, place, step)
    finally:
        steps.close()


def _answer(program: Coroutine, place: PlaceOfRounds, step: Any) -> Any:
    """Return what the partitions answer to a job."""
    match step:
        case Sum(job) if callable(job):
            return tree_sum(place.collect(place.submit(apply_job, job, is_sum=True)))
        case _ if callable(step):
            return place.collect(place.submit(apply_job, step))
    raise TypeError(f"{name_of(program)} yields {step!r}; a job is a function of a partition")


def apply_job(partition: Any, job: Callable[[Any], tuple[Any, Any]]) -> tuple[Any, Any]:
    """Call the job with the partition: the simplest function of a round."""
    return job(partition)
