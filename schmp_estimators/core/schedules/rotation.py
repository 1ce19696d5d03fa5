"""The static schedule of STRADS: blocks of the model go round a ring of workers."""


def schedule_rotation(n_shards: int, n_blocks: int | None = None) -> tuple[tuple[int, ...], ...]:
    """Return the rotation."""
    size = max(n_shards, n_blocks or n_shards)
    n_blocks = n_blocks or n_shards
    return tuple(
        tuple(b if (b := (shard + step) % size) < n_blocks else -1 for shard in range(n_shards)) for step in range(size)
    )
