"""How the client brings workers together that talk to each other in a task each; what these do is in `gang`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from dask._task_spec import Task as DaskTask
from dask._task_spec import TaskRef
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from distributed import Client, Future

from schmp_estimators.core.places.borrowing import borrowing
from schmp_estimators.core.places.gang import prepare, take_part
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
    client : distributed.Client
        Of the cluster.
    groups : mapping of str to list of int
        The partitions of each worker, by its address.
    keys : sequence of Key
        Names for the tasks, at least one for each worker.
    job : object or Ref
        What they do together.
    unwrap : callable
        Makes a partition of what is held.
    held : sequence of Key
        Where each partition is.
    annotations : mapping
        Of the tasks.
    listening : set of str
        Mutated: workers that are known to listen to others; all of `groups` are, then.

    Raises
    ------
    Exception
        Whatever kept them from it, the death of a worker among it.
    """
    addresses, token, layers, made = list(groups), uuid4().hex, {}, []
    job = TaskRef(job.key) if isinstance(job, Ref) else job
    for rank, (address, places) in enumerate(groups.items()):
        made.append(keys[rank])
        partitions = (TaskRef(held[place]) for place in places)
        arguments = (job, unwrap, borrowing, addresses, rank, token, places, len(held), *partitions)
        only = {**annotations, "workers": [address], "allow_other_workers": False}
        layers[f"{token}-{rank}"] = MaterializedLayer(
            {keys[rank]: DaskTask(keys[rank], take_part, *arguments)}, annotations=only
        )
    futures: list[Future[Any]] = []
    try:
        if new := [address for address in addresses if address not in listening]:
            # In tasks: who asks a worker itself, and it has just died, waits for half a minute.
            named = {address: (f"listen-{token}", address) for address in new}
            futures += [client.submit(prepare, workers=[one], key=key) for one, key in named.items()]
            await_all(client, futures, set(new))
            listening.update(new)
        met = client.get(HighLevelGraph(layers, {name: set() for name in layers}), made, sync=False)
        futures += met
        return gather(client, met, set(addresses))[0]
    finally:
        for future in futures:
            future.release()
