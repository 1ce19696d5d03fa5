"""The static schedule of STRADS: blocks of the model go round a ring of workers."""


def schedule_rotation(n_shards: int) -> tuple[tuple[int, ...], ...]:
    """Return the rotation of as many blocks as shards: in step ``s`` shard ``p`` meets block ``(p + s) % n_shards``.

    After `n_shards` steps every shard has met every block once, and no two shards ever meet the same block in the same
    step.  This is ``scheduleStaticRota`` of Kim et al. (EuroSys 2016, section 3.1).

    Parameters
    ----------
    n_shards : int
        Number of shards, and of blocks; at least 1.

    Returns
    -------
    tuple of tuple of int
        ``order[step][shard]``, the number of the block.

    Raises
    ------
    ValueError
        If `n_shards` is less than 1.

    Examples
    --------
    >>> from schmp_estimators.schmp import schedule_rotation
    >>> schedule_rotation(3)
    ((0, 1, 2), (1, 2, 0), (2, 0, 1))
    """
    if n_shards < 1:
        raise ValueError(f"n_shards is {n_shards}; a rotation needs at least 1 shard")
    return tuple(tuple((shard + step) % n_shards for shard in range(n_shards)) for step in range(n_shards))
