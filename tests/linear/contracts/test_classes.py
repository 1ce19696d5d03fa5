"""Classes are found as NumPy finds them, and what scikit-learn says of numbers that are none is said."""

import warnings

import numpy as np
import pytest
from sklearn.utils.multiclass import check_classification_targets

from schmp_estimators.linear.samples import find_classes

LABELS = {
    "floats": np.array([1.0, -1.0, 1.0, 3.0]),
    "half floats": np.array([2.0, 1.0, 2.0], np.float16),
    "integers": np.array([5, 0, 5], np.int64),
    "least int8": np.array([-128, 127, -128], np.int8),
    "unsigned": np.array([2**63, 1, 2**63], np.uint64),
    "booleans": np.array([True, False, True]),
    "strings": np.array(["b", "a", "b"]),
    "objects": np.array(["b", "a", "b"], object),
    "many": np.arange(30.0),
    "fractions": np.array([0.5, 1.0, 0.5]),
    "too large": np.array([1e300, 1.0, 1.0]),
    "numbers as objects": np.array([1, 2, 1], object),
    "many of many": np.repeat(np.arange(11), 2)[:21],
}


def said(check, y):
    """Return the error and the warnings of a check."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check(y)
        except ValueError as error:
            return str(error), []
        return None, [str(one.message) for one in caught if one.category is UserWarning]


@pytest.mark.parametrize("name", LABELS)
def test_classes(name):
    y = LABELS[name]
    expected = said(check_classification_targets, y)
    assert said(find_classes, y) == expected
    if expected[0] is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            classes, codes = find_classes(y)
        wanted = np.unique(y, return_inverse=True)
        np.testing.assert_array_equal(classes, wanted[0])
        np.testing.assert_array_equal(codes, wanted[1])
