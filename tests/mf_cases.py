"""What tests of matrix factorisation have in common."""

import numpy as np
from scipy import sparse


def bits(fitted):
    """Return all that a fit has learned, to compare it to the bit."""
    arrays = fitted.components_, fitted.user_factors_, fitted.user_bias_, fitted.item_bias_
    return [array.tobytes() for array in arrays] + [fitted.global_mean_, fitted.rating_scale_]


def planted():
    """Return a table of three factors and biases of users, and which of it are ratings."""
    generator = np.random.default_rng(0)
    truth = (
        3
        + generator.normal(size=(50, 1))
        + generator.normal(size=(50, 3)) @ generator.normal(size=(3, 40))
    )
    return truth, generator.random(truth.shape) < 0.4


def stored(block):
    """Return the ratings of a dense matrix whose gaps are NaN as a sparse array."""
    known = ~np.isnan(block)
    return sparse.csr_array((block[known], np.nonzero(known)), shape=block.shape)
