"""Ranks that are threads of this process, and a place that has them.

What travels is pickled, and can be lost.
"""

import threading
from queue import Empty, SimpleQueue

from distributed.protocol.pickle import dumps, loads

from schmp_estimators.core.engine.communicator import Communicator
from schmp_estimators.core.errors import WorkLostError
from schmp_estimators.core.places.place import Place

_LOST = dumps("lost")


class Talk(Communicator):
    """What the ranks of `in_ranks` talk by; what has been sent is read only at the other end."""

    def __init__(self, rank, said, n_threads=1):
        self.rank, self.size, self._said, self._place = rank, len(said), said, Place(n_threads)
        self.n_threads = n_threads

    def each(self, function, jobs):
        return self._place.each(function, jobs)

    def send(self, to, value):
        assert to != self.rank
        self._said[self.rank][to].put(dumps(value))

    def receive(self, source):
        assert source != self.rank
        try:
            message = self._said[source][self.rank].get(timeout=60)
        except Empty:
            raise WorkLostError("nobody speaks") from None
        if message is _LOST:
            raise WorkLostError("a rank has failed")
        return loads(message)


def in_ranks(size, function, n_threads=1):
    """Return ``function(communicator)`` of each rank.

    What it returned, or the exception that it raised.
    """
    said, made = [[SimpleQueue() for _ in range(size)] for _ in range(size)], [None] * size

    def work(rank):
        try:
            made[rank] = function(Talk(rank, said, n_threads))
        except Exception as error:
            made[rank] = error
            for box in said[rank]:
                box.put(_LOST)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    left = [loads(box.get()) for of_rank in said for box in of_rank if not box.empty()]
    assert not left or any(isinstance(one, Exception) for one in made), (
        "not all that was sent was received"
    )
    return made


class Handle:
    """A value that stays in the place."""

    def __init__(self, place, value):
        self.value = value
        place.held.add(self)


class RankPlace(Place):
    """What a `GroupRun` asks of a cluster.

    The calls in `losses`, counted from one, lose what they have done.
    """

    is_local = False

    def __init__(self, groups, losses=()):
        super().__init__()
        self._groups, self._losses, self.n_calls, self.held, self.n_resets = (
            groups,
            set(losses),
            0,
            set(),
            0,
        )

    def groups(self, n_shards):
        assert sorted(p for group in self._groups for p in group) == list(range(n_shards))
        return [list(group) for group in self._groups]

    def bring(self, value, p):
        return Handle(self, loads(dumps(value)))

    def load(self, word, loads):
        for function, pieces, _, n_elements in loads:
            made = function(*_values([one() if callable(one) else one for one in pieces]))
            parts = [made[at] for at in range(n_elements)] or [made]
            yield [Handle(self, one) for one in parts]

    def call(self, word, function, args, p):
        return Handle(self, function(*_values(args)))

    def call_ranks(self, word, function, args, near, take=None):
        assert list(near) == [group[0] for group in self._groups]
        made = in_ranks(len(near), lambda talk: function(talk, *_values(args[talk.rank])))
        self._lose()
        if failed := [one for one in made if isinstance(one, Exception)]:
            raise next((one for one in failed if not isinstance(one, WorkLostError)), failed[0])
        if take is None:
            return loads(dumps(made))
        return [Handle(self, one) for one in made], take(made[0])

    def results(self, held):
        self._lose()
        return loads(dumps([one.value for one in held]))

    def wait(self, held):
        self._lose()

    def in_place(self, held):
        return held

    def release(self, held):
        self.held.difference_update(held)

    def aside(self, function):
        return function

    def reset(self, told=""):
        self.n_resets += 1

    def _lose(self):
        self.n_calls += 1
        if self.n_calls in self._losses:
            raise WorkLostError("on purpose")


def _values(args):
    return [one.value if isinstance(one, Handle) else loads(dumps(one)) for one in args]
