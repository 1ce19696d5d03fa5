"""What workers keep for each other: for which shards they ask together, and what they forget."""

from collections import Counter
from dataclasses import dataclass

import pytest
from definition import run_serial
from schmp_estimators.core.engines import cells
from schmp_estimators.core.engines.graph import SweepGraph
from schmp_estimators.core.engines.keys import Keys, Run, member
from schmp_estimators.core.places.post import Shelf, Ticket, shelf_of
from toys import Exchanging, Merging, make_shards

from schmp_estimators.core.engine.running import static_run
from schmp_estimators.core.places import dask as dask_place
from schmp_estimators.core.places import post
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.core.places.place import Mode, in_turn
from schmp_estimators.core.program import Source

N_SHARDS, N_SWEEPS = 9, 4


def tickets(sweep=0, stage=1, run=1):
    return [Ticket(f"worker-{p % 2}", ("send-x", run, sweep, stage, p), 100) for p in range(6)]


def test_the_first_shard_that_asks_fetches_for_its_neighbours():
    shelf, here = Shelf(), [0, 2, 4]
    batch, numbers = shelf.claim("post", tickets(), 2, here, 2)
    assert numbers == [2, 0]
    other, more = shelf.claim("post", tickets(), 4, here, 2)
    assert other is not batch and more == [4]
    assert shelf.claim("post", tickets(), 0, here, 2) == (batch, [])
    again, alone = shelf.claim("post", tickets(), 0, here, 9)  # a task may run twice
    assert again is not batch and alone == [0]
    assert shelf.claim("post", tickets(), 5, here, 9)[1] == [5]  # or at another worker
    assert shelf.claim("other", tickets(), 5, here, 9)[1] == [5, 0, 2, 4]
    assert shelf.claim("post", tickets(stage=2), 4, here, 1)[1] == [4]


def test_what_was_brought_for_a_shard_that_never_asks_lasts_until_the_next_sweep():
    shelf, here = Shelf(), [0, 2, 4]
    shelf.claim("post", tickets(), 0, here, 9)
    shelf.claim("post", tickets(stage=-1), 0, here, 9)  # a harvest
    assert len(shelf) == 4
    shelf.claim("post", tickets(sweep=1), 0, here, 1)
    assert len(shelf) == 2
    shelf.claim("post", tickets(sweep=0, stage=-1, run=2), 0, here, 1)
    assert len(shelf) == 0
    shelf.claim("post", tickets(sweep=2), 0, here, 9)
    shelf.clear("post")
    assert len(shelf) == 0


def test_pieces_last_until_another_sweep_has_some():
    shelf, keys = Shelf(), [one.key for one in tickets()]
    for p, key in enumerate(keys):
        shelf.put("post", key, [10 * p + to for to in range(6)])
    shelf.put("post", tickets(stage=-1)[0].key, range(6))
    assert shelf.get("post", keys[1:3], [5, 0]) == [15, 25, 10, 20]
    shelf.put("post", tickets(sweep=1)[0].key, range(6))
    assert len(shelf) == 2
    with pytest.raises(KeyError, match="send-x"):
        shelf.get("post", keys[:1], [0])


def test_what_is_cut_ahead_leaves_what_others_still_need():
    shelf, sent, ahead = Shelf(), tickets()[0].key, tickets(sweep=1)
    answered = ("answer-x", *sent[1:])
    shelf.put("post", sent, range(6))
    shelf.put("post", answered, range(6))
    shelf.put("post", ahead[0].key, range(6))  # all shards have answers: nobody needs what was sent for them
    assert shelf.get("post", [answered, ahead[0].key], [3]) == [3, 3]
    with pytest.raises(KeyError):
        shelf.get("post", [sent], [3])
    shelf.put("other", answered, range(6))
    shelf.claim("post", ahead, 0, [0], 1)  # the sweep of the answers is over
    with pytest.raises(KeyError):
        shelf.get("post", [answered], [3])
    assert shelf.get("post", [ahead[0].key], [3]) == shelf.get("other", [answered], [3]) == [3]


def test_states_are_cut_where_they_are_made_and_tickets_gathered_there():
    n, program = 9, Exchanging()
    keys = Keys(*(tuple((what, p) for p in range(n)) for what in ("shard", "state")), (), ("model",))
    mode = Mode(False, in_turn, post.WorkerPost("token"))
    for sweep in range(3):  # the second one observes what is exchanged, too
        graph = SweepGraph(program, mode, Run("x"), sweep, keys, homes=[0] * 4 + [1] * 5)
        graph.sweep(is_last=sweep == 2)
        functions = Counter(task.function for task in graph.tasks)
        assert functions[cells.send] == n * {0: 1, 1: 1, 2: 0}[sweep]
        assert functions[cells.take_tickets] == {0: 0, 1: 2, 2: 2}[sweep]
        gathered = [{arg.key[4] for arg in task.args} for task in graph.tasks if task.function is cells.take_tickets]
        assert gathered == [set(range(4)), set(range(4, n))][: len(gathered)]
        keys = graph.keys
        assert keys.cut == (sweep < 2)


def test_one_task_serves_neighbours_at_the_same_place():
    n, program = 9, Merging()
    keys = Keys(*(tuple((what, p) for p in range(n)) for what in ("shard", "state")), (), ("model",))
    mode = Mode(False, in_turn, post.WorkerPost("token"))
    for sweep in range(3):
        graph = SweepGraph(program, mode, Run("x"), sweep, keys, homes=[0] * 4 + [1] * 5, together=3)
        graph.sweep(is_last=sweep == 2)
        functions = Counter(task.function for task in graph.tasks)
        assert functions[cells.answer_some] == functions[cells.work_some] == 3
        assert functions[cells.answer] == functions[cells.work_alone] == 1  # the fourth at the first place
        keys = graph.keys
        assert [member(keys.states, p) for p in range(n)] == [0, 1, 2, -1, 0, 1, 2, 0, 1]
        assert len(set(keys.states)) == 4


@dataclass(frozen=True)
class Modest(Exchanging):
    """What cuts a state knows the sweep for which it does, and no model."""

    def split(self, at, state):
        assert at.model is None
        return [piece + at.sweep for piece in super().split(at, state)]


@pytest.mark.cluster
def test_what_cuts_a_state_is_told_the_same_ahead(client, monkeypatch):
    monkeypatch.setattr(dask_place, "EXCHANGED_BY_TASKS", 0)
    sources = [Source(_pass, (lambda shard=shard: shard,)) for shard in make_shards(5)]
    with static_run(Modest(), sources, DaskPlace(client), n_sweeps=N_SWEEPS) as run:
        found = list(run)
    assert found == [record for record, *_ in run_serial(Modest(), make_shards(5), N_SWEEPS)]


@pytest.mark.cluster
@pytest.mark.parametrize("together", [True, False])
def test_a_worker_asks_another_for_many_shards_at_once(client, monkeypatch, together):
    monkeypatch.setattr(dask_place, "EXCHANGED_BY_TASKS", 0)
    monkeypatch.setattr(post, "BYTES_TOGETHER", 1 << 24 if together else 1)
    shards = make_shards(N_SHARDS)
    client.run(_note)
    sources = [Source(_pass, (lambda shard=shard: shard,)) for shard in shards]
    with static_run(Exchanging(), sources, DaskPlace(client), n_sweeps=N_SWEEPS) as run:
        found = list(run)
    assert found == [record for record, *_ in run_serial(Exchanging(), shards, N_SWEEPS)]
    asked = [one for of_worker in client.run(_noted).values() for one in of_worker]
    singly = (2 * N_SWEEPS + N_SWEEPS // 2) * N_SHARDS  # two exchanges a sweep; every other sweep observes
    if together:  # twice in each exchange, but for shards that Dask has moved
        assert 0 < len(asked) < singly / 2
    else:
        assert all(len(numbers) == 1 for numbers in asked)
        assert len(asked) >= singly


def _pass(shard):
    return shard


def _note(dask_worker):
    """Let a worker note for which shards it is asked."""
    shelf_of(dask_worker)
    give, asked = dask_worker.handlers["schmp-piece"], []

    async def noting(token, keys, numbers):
        asked.append(list(numbers))
        return await give(token, keys, numbers)

    dask_worker.handlers["schmp-piece"], dask_worker.schmp_asked = noting, (give, asked)


def _noted(dask_worker):
    dask_worker.handlers["schmp-piece"], asked = dask_worker.schmp_asked
    del dask_worker.schmp_asked
    return asked
