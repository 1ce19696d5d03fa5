"""How the client brings workers together that talk to each other in a task each; what these do is in `gang`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from dask._task_spec import Task as DaskTask
from dask._task_spec import TaskRef
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from distributed import Client, Future

from schmp_estimators.core.places.gang import Seat, prepare, take_part
from schmp_estimators.core.places.place import Key, Ref
from schmp_estimators.core.places.watch import await_all, gather


def let_meet(
    client: Client,
    groups: Mapping[str, list[int]],
    keys: Sequence[Key],
    job: Any,
    unwrap: Callable[[Any], Any],
    held: Sequence[Key],
    annotations: Mapping[str, Any],
    listening: set[str],
) -> Any:
    """Let workers do a job together, each in a task that runs nowhere else, and return the answer of the first.

    Parameters
    ----------
    client, groups, keys, annotations, listening
        As in `begin_together`.
    job : object or Ref
        What they do together.
    unwrap : callable
        Makes a partition of what is held.
    held : sequence of Key
        Where each partition is.

    Raises
    ------
    Exception
        Whatever kept them from it, the death of a worker among it.
    """
    args = [(job, unwrap, *(Ref(held[place]) for place in places)) for places in groups.values()]
    met = begin_together(client, groups, keys, take_part, args, annotations, listening)
    try:
        return gather(client, met, set(groups))[0]
    finally:
        for future in met:
            future.release()


def begin_together(
    client: Client,
    groups: Mapping[str, list[int]],
    keys: Sequence[Key],
    function: Callable[..., Any],
    args: Sequence[Sequence[Any]],
    annotations: Mapping[str, Any],
    listening: set[str],
) -> list[Future[Any]]:
    """Let workers begin a task each, which runs nowhere else, and return the futures.

    Parameters
    ----------
    client : distributed.Client
        Of the cluster.
    groups : mapping of str to list of int
        The partitions of each worker, by its address.
    keys : sequence of Key
        Names for the tasks, at least one for each worker.
    function : callable
        ``function(seat, *args)``, where the seat says who else is there.
    args : sequence of sequences
        For each worker; those that are a `Ref` stand for results.
    annotations : mapping
        Of the tasks.
    listening : set of str
        Mutated: workers that are known to listen to others; all of `groups` are, then.

    Raises
    ------
    WorkLostError
        If one of them is lost.
    """
    addresses, token, count = list(groups), uuid4().hex, sum(map(len, groups.values()))
    _let_listen(client, [address for address in addresses if address not in listening], token)
    listening.update(addresses)
    layers = {}
    for rank, (key, address, given) in enumerate(zip(keys, addresses, args, strict=False)):
        seat = Seat(addresses, rank, token, groups[address], count)
        task = DaskTask(key, function, seat, *(TaskRef(arg.key) if isinstance(arg, Ref) else arg for arg in given))
        only = {**annotations, "workers": [address], "allow_other_workers": False}
        layers[f"{token}-{rank}"] = MaterializedLayer({key: task}, annotations=only)
    graph = HighLevelGraph(layers, {name: set() for name in layers})
    return list(client.get(graph, list(keys[: len(addresses)]), sync=False))


def _let_listen(client: Client, addresses: Sequence[str], token: str) -> None:
    """Let workers listen to the members of teams.

    In tasks: who asks a worker itself, and it has just died, waits for half a minute.
    """
    futures = [client.submit(prepare, workers=[one], key=(f"listen-{token}", one)) for one in addresses]
    try:
        if futures:
            await_all(client, futures, set(addresses))
    finally:
        for future in futures:
            future.release()
