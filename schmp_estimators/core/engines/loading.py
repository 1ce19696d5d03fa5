"""The shards of a run as workers load them, and what their sources tell beside them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from schmp_estimators.core.engines import cells
from schmp_estimators.core.engines.graph import SweepGraph
from schmp_estimators.core.engines.ledger import Ledger
from schmp_estimators.core.places.place import Key, Place, Ref
from schmp_estimators.core.program import Source


class Loading:
    """Lets shards be loaded, anew whenever they are lost.

    Parameters
    ----------
    sources : sequence of Source
    place : Place
    in_place : bool
        Whether the place is this process.
    """

    def __init__(self, sources: Sequence[Source], place: Place, in_place: bool) -> None:
        self._sources, self._place, self._in_place = sources, place, in_place
        #: Where what sources tell is, until somebody has asked for it.
        self._told: list[Key] = []
        self._was_asked = not any(source.tells for source in sources)

    def load(self, graph: SweepGraph, ledger: Ledger) -> tuple[Key, ...]:
        """Let the shards be loaded, those of each worker in turn, and return where they will be."""
        n = len(self._sources)
        in_turn = zip_longest(*(self._place.teams(n) or [list(range(n))]))
        shards, told, wanted, inputs = dict[int, Key](), dict[int, Key](), list[Key](), list[Key]()
        for p in [p for some in in_turn for p in some if p is not None]:
            function, pieces, tells = self._sources[p]
            lent = [ledger.lend(f"input-{i}", p, piece) for i, piece in enumerate(pieces)]
            inputs += [ref.key for ref in lent]
            shards[p] = graph.add("load", p, cells.load_shard, function, *lent)
            if tells:
                loaded = Ref(shards[p])
                shards[p] = graph.add("load", p, cells.take_shard, loaded, at=(2,))
                if not self._was_asked:
                    told[p] = graph.add("load", p, cells.take_told, loaded, at=(1,))
                    wanted.append(told[p])
            wanted.append(shards[p])
            # what the client sends may be large: workers begin with the first while it sends others
            if len(shards) == n or (tells and not self._in_place):
                self._place.submit(graph.tasks, wanted)
                self._place.drop_after(inputs, shards[p])
                for done in (graph.tasks, wanted, inputs):
                    done.clear()
        self._told = [told[p] for p in sorted(told)]
        return tuple(shards[p] for p in range(n))

    def fetch_told(self) -> list[Any]:
        """Return what the sources tell, one by one: the first is brought while others are made."""
        return [value for key in self._told for value in self._place.fetch([key])]

    def end_telling(self, told: Sequence[Any]) -> list[Any]:
        """Return for each source what it has told, None if it does not tell, and let go of it."""
        self._place.drop(self._told)
        self._told, self._was_asked, found = [], True, iter(told)
        return [next(found, None) if source.tells else None for source in self._sources]
