"""What a member of a team does in a stretch of sweeps: its shards work, and exchange pieces with those of the others.

It does what the serial engine does, with its own shards, in the same order; states are changed where they are.  No task
ends within a stretch, so nothing goes by way of the scheduler, and no state is there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from schmp_estimators.core.engines.cells import Outcome, Several, outcome_of, single
from schmp_estimators.core.engines.handing_over import HandedOver, take_over
from schmp_estimators.core.places.place import quick
from schmp_estimators.core.program import AnyProgram
from schmp_estimators.core.stages import At, Each, Stage, check_stages, for_all
from schmp_estimators.core.values import freeze


class ExchangingTeam(Protocol):
    """A team whose members say something else to each of the others."""

    #: 0 for the first member
    rank: int
    #: Applies a function to every job, with the threads that this member has.
    each: Each

    def swap(self, said: list[Any]) -> list[Any]:
        """Return what every member says to this one, in their order, given what this one says to each."""

    def tell(self, value: Any) -> None:
        """Say something to all others, as the first member."""

    def listen(self) -> Any:
        """Return what the first member tells."""

    def bring_to_first(self, parts: Sequence[Any]) -> list[Any] | None:
        """Return what is said of each shard, in order, to the first member, and None to the others."""


class Stretch(NamedTuple):
    """Consecutive sweeps of a program whose shards exchange pieces and have no blocks."""

    program: AnyProgram
    first: int
    n_sweeps: int
    #: The shards of each member.
    groups: tuple[tuple[int, ...], ...]


class Told(NamedTuple):
    """What the client hears of a stretch."""

    records: list[dict[str, Any]]
    #: That each sweep took.
    seconds: list[float]


class _Summary(NamedTuple):
    told: Told
    model: Any


def go_on(
    team: ExchangingTeam, stretch: Stretch, places: Sequence[tuple[int, int]], model: Any, *inputs: Any
) -> Outcome | Several:
    """Work on the shards of a member to the end of a stretch; the first member's first outcome has the summary.

    Parameters
    ----------
    team : ExchangingTeam
    stretch : Stretch
    places : sequence of (int, int)
        For each shard of the member which of the inputs after the shards holds its state, and which one of the outcomes
        there, -1 if there is only one.
    model : object
        As it is before the stretch.
    *inputs : object
        The shards, what holds their states, and what only has to be there first.
    """
    shards, held = inputs[: len(places)], inputs[len(places) :]
    states = [take_over(outcome_of(held[at], which).state) for at, which in places]
    member = _Member(stretch, team, freeze(list(shards)), states, freeze(model))
    records, seconds = [], []
    for sweep in range(stretch.first, stretch.first + stretch.n_sweeps):
        began = perf_counter()
        member.sweep(sweep)
        records.append(stretch.program.record(sweep, member.model))
        seconds.append(perf_counter() - began)
    made = [Outcome(HandedOver(state)) for state in member.states]
    if not team.rank:
        made[0] = made[0]._replace(report=_Summary(Told(records, seconds), member.model))
    return made[0] if len(made) == 1 else Several(made)


@quick
def take_told(held: Any) -> Told | None:
    """Keep only what the first member has to tell the client; None of the others."""
    summary = single([held])[0].report
    return summary.told if summary else None


@quick
def be_there(held: Any) -> None:
    """Say, by being done, that something has been made."""


@quick
def take_model(held: Any) -> Any:
    """Keep the model only, of what the first member has made."""
    return single([held])[0].report.model


class _Member:
    """The shards of a member in the middle of a stretch."""

    def __init__(
        self, stretch: Stretch, team: ExchangingTeam, shards: Sequence[Any], states: list[Any], model: Any
    ) -> None:
        self.states, self.model = states, model
        self._program, self._team, self._groups = stretch.program, team, stretch.groups
        n_shards = sum(map(len, stretch.groups))
        numbered = zip(shards, stretch.groups[team.rank], strict=True)
        self._ats = [At(shard, None, -1, p, n_shards, each=team.each) for shard, p in numbered]

    def sweep(self, number: int) -> None:
        """Do all stages of a sweep."""
        ats = self._ats = [at._replace(sweep=number) for at in self._ats]
        n_shards, answers = ats[0].n_shards, list[list[Any]]()
        for stage in check_stages(self._program, self._program.schedule(number, n_shards), n_shards, 0):
            if stage.kind == "exchanges":
                answers = self._swap(self._work(stage, self._pieces(stage)))
            elif stage.kind == "each":
                self._aggregate(self._each(stage, answers))
            else:
                seen = self._pieces(stage) if stage.split else []
                self._aggregate(self._observe(stage, seen))

    def _for_each(self, function: Callable[[int, At], Any], model: Any) -> list[Any]:
        """Return what a function makes of the shards, with the threads that this member has."""
        ats = [at._replace(model=model) for at in self._ats]
        return self._team.each(lambda i: function(i, ats[i]), range(len(ats)))

    def _pieces(self, stage: Stage) -> list[list[Any]]:
        """Return for each shard of this member the pieces that all shards have for it."""
        split = stage.split
        assert split is not None
        # no model, as where pieces are cut before it is made
        return self._swap(self._for_each(lambda i, at: for_all(split, at, freeze(self.states[i])), None))

    def _work(self, stage: Stage, pieces: list[list[Any]]) -> list[Sequence[Any]]:
        """Return what the shards answer to all; pieces go as they are used."""
        return self._for_each(lambda i, at: for_all(stage.function, at, _taken(pieces, i), *stage.args), self.model)

    def _each(self, stage: Stage, answers: list[list[Any]]) -> list[Any]:
        """Update the shards, and return their reports; answers go as they are used."""

        def update(i: int, at: At) -> Any:
            made = stage.function(at, self.states[i], *([_taken(answers, i)] if answers else []), *stage.args)
            self.states[i], *report = made if stage.reports else (made,)
            return report[0] if report else self._program.report(at, self.states[i])

        return self._for_each(update, self.model)

    def _observe(self, stage: Stage, pieces: list[list[Any]]) -> list[Any]:
        """Return the reports of shards that see themselves, and perhaps pieces of all states."""

        def look(i: int, at: At) -> Any:
            return stage.function(at, freeze(self.states[i]), *pieces[i : i + 1], *stage.args)

        return self._for_each(look, self.model)

    def _swap(self, made: list[Sequence[Any]]) -> list[list[Any]]:
        """Return for each shard of this member what all shards have for it, given what those of this one have."""
        said = [[[of_shard[p] for p in group] for of_shard in made] for group in self._groups]
        made.clear()
        found: list[dict[int, Any]] = [{} for _ in self.states]
        for group, heard in zip(self._groups, self._team.swap(said), strict=True):
            for p, of_shard in zip(group, heard, strict=True):
                for mine, one in zip(found, of_shard, strict=True):
                    mine[p] = one
        return [freeze([of_all[p] for p in range(len(of_all))]) for of_all in found]

    def _aggregate(self, reports: list[Any]) -> None:
        """Let the first member make the new model for all."""
        brought = self._team.bring_to_first(freeze(reports))
        if brought is None:
            self.model = freeze(self._team.listen())
        else:
            self.model = freeze(self._program.aggregate(self.model, freeze(brought)))
            self._team.tell(self.model)


def _taken(values: list[Any], at: int) -> Any:
    """Return an element of a list, which has it no longer."""
    value, values[at] = values[at], None
    return value
