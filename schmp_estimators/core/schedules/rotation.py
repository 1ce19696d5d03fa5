"""The static schedule of STRADS: blocks of the model go round a ring of workers."""


def schedule_rotation(n_shards: int, n_blocks: int | None = None) -> tuple[tuple[int, ...], ...]:
    """Return the rotation of blocks: in step ``s`` shard ``p`` meets block ``(p + s) % max(n_shards, n_blocks)``.

    After so many steps every shard has met every block once, and no two shards ever meet the same block in the same
    step.  A shard for which there is no block of that number rests.  This is ``scheduleStaticRota`` of Kim et al.
    (EuroSys 2016, section 3.1).

    Parameters
    ----------
    n_shards : int
        Number of shards, at least 1.
    n_blocks : int, optional
        Number of blocks, at least 1.  None: as many as shards.

    Returns
    -------
    tuple of tuple of int
        ``order[step][shard]``, the number of the block, or -1 if the shard rests in this step.

    Raises
    ------
    ValueError
        If `n_shards` or `n_blocks` is less than 1.

    See Also
    --------
    schedule_from_costs : If not every shard needs to meet every block.

    Examples
    --------
    >>> from schmp_estimators.schmp import schedule_rotation
    >>> schedule_rotation(3)
    ((0, 1, 2), (1, 2, 0), (2, 0, 1))
    >>> schedule_rotation(3, 2)
    ((0, 1, -1), (1, -1, 0), (-1, 0, 1))
    >>> schedule_rotation(2, 3)
    ((0, 1), (1, 2), (2, 0))
    """
    if n_shards < 1:
        raise ValueError(f"n_shards is {n_shards}; a rotation needs at least 1 shard")
    if n_blocks is None:
        n_blocks = n_shards
    if n_blocks < 1:
        raise ValueError(f"n_blocks is {n_blocks}; a rotation needs at least 1 block, or None for as many as shards")
    size = max(n_shards, n_blocks)
    ring = [*range(n_blocks), *[-1] * (size - n_blocks)]
    return tuple([tuple((ring + ring)[step : step + n_shards]) for step in range(size)])
