"""A processor instruction that numba does not offer: fetch memory that will soon be needed."""

from schmp_estimators.core.lanes import emitted


@emitted()
def prefetch(code, array, index):
    """Start to fetch the cache line of ``array[index]``, 1-d and contiguous.

    The index may be out of bounds.
    """
    array.prefetch(index)
