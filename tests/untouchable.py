"""Rows that only worker processes may have."""

import multiprocessing

from scipy import sparse


class Untouchable(sparse.csr_array):
    """Samples that can be neither made by the client nor brought to it."""

    def __reduce__(self):
        return make_untouchable, ((self.data, self.indices, self.indptr), self.shape)


def make_untouchable(*arguments):
    if multiprocessing.parent_process() is None:
        raise AssertionError("the client has got a chunk")
    return Untouchable(*arguments)
