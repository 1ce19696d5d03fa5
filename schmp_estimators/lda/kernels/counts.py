"""Reading counts: whether every number is a count, and which of them are not zero."""

import numpy as np

from schmp_estimators.core.jit import kernel

#: The largest count: it must fit in 32 bits.
LARGEST = 2**31 - 1


@kernel
def copy_entries(ptr, column, value, out_ptr, out_column, out_value):
    """Copy the entries that are not zero, as int32; the three outputs are mutated."""
    to = 0
    for row in range(ptr.size - 1):
        for entry in range(ptr[row], ptr[row + 1]):
            if value[entry] != 0:
                out_column[to] = column[entry]
                out_value[to] = value[entry]
                to += 1
        out_ptr[row + 1] = to


@kernel
def inspect_dense(values, kept):
    """Count the non-zeros of each row into `kept`, which is mutated; return the first row and column of no count."""
    for row in range(values.shape[0]):
        filled = 0
        for at in range(values.shape[1]):
            x = values[row, at]
            if not (x >= 0 and x <= LARGEST and x == np.int64(x)):
                return row, at
            filled += x != 0
        kept[row] = filled
    return -1, -1


@kernel
def copy_dense(values, to, out_column, out_value):
    """Copy the non-zeros of dense rows to `to` and on; the outputs are mutated."""
    for row in range(values.shape[0]):
        for at in range(values.shape[1]):
            if values[row, at] != 0:
                out_column[to] = at
                out_value[to] = values[row, at]
                to += 1
