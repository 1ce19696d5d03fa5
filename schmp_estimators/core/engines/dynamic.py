"""The dynamic engine: rounds of schedule, update and aggregate.  It knows no statistics.

A program decides from the present model what comes next (Kim et al., EuroSys 2016, section 3.3.2).  Rounds may overlap:
with `pipeline_depth` d up to d jobs are under way, each scheduled on a model that does not know the results of the
others; a program that allows this guards new jobs against those in flight.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol


class DynamicProgram(Protocol):
    """What the dynamic engine asks of an algorithm."""

    def schedule(self, model: Any) -> Any:
        """Return the next job, or None if there is none until a job in flight has been aggregated, or at the end."""

    @staticmethod
    def update(partition: Any, job: Any) -> tuple[Any, Any]:
        """Return the partition with its new state, and a partial result; pure."""

    def aggregate(self, model: Any, job: Any, partials: list[Any]) -> None:
        """Take the partial results, in partition order, into the model."""


class RoundRuntime(Protocol):
    """What the dynamic engine asks of the place where partitions live."""

    def submit(self, function: Callable[..., Any], job: Any) -> Any:
        """Apply function(partition, job) to every partition, keep the new partitions, return a ticket."""

    def collect(self, ticket: Any) -> list[Any]:
        """Return the partial results of a ticket, in partition order."""


def run_rounds(program: DynamicProgram, model: Any, runtime: RoundRuntime, pipeline_depth: int = 1) -> None:
    """Run the program until it has no further job."""
    in_flight: deque[tuple[Any, Any]] = deque()
    while True:
        while len(in_flight) < pipeline_depth:
            job = program.schedule(model)
            if job is None:
                break
            in_flight.append((job, runtime.submit(program.update, job)))
        if not in_flight:
            return
        job, ticket = in_flight.popleft()
        program.aggregate(model, job, runtime.collect(ticket))
