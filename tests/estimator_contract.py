"""What every estimator of this package keeps to, beside scikit-learn's own checks: inherit, and say what to test."""

import pickle

import numpy as np
import pytest
from corpora import NAMES, SMALL
from sklearn.base import clone
from sklearn.exceptions import NotFittedError


class EstimatorContract:
    """Subclasses have `make(**parameters)` and `same(one, other)`, which asserts that two fits are equal to the bit."""

    X = SMALL

    @pytest.mark.parametrize(
        "copy",
        [
            clone,
            lambda fitted: type(fitted)().set_params(**fitted.get_params()),
            lambda fitted: pickle.loads(pickle.dumps(clone(fitted))),
            lambda fitted: type(fitted)(**fitted.get_params()),
        ],
        ids=["clone", "set_params", "pickle", "constructor"],
    )
    def test_a_copy_is_unfitted_and_fits_the_same(self, copy):
        fitted = self.make().fit(self.X)
        copied = copy(fitted)
        for method in ("transform", "get_feature_names_out"):
            with pytest.raises(NotFittedError, match="not fitted yet"):
                getattr(copied, method)(self.X)
        self.same(copied.fit(self.X), fitted)

    def test_pickle_keeps_parameters_model_and_results(self):
        fitted = self.make().fit(self.X)
        loaded = pickle.loads(pickle.dumps(fitted))
        assert loaded.get_params() == fitted.get_params()
        self.same(loaded, fitted)
        np.testing.assert_array_equal(loaded.transform(self.X), fitted.transform(self.X))

    def test_the_input_is_not_written_to_and_a_second_fit_forgets_the_first(self):
        X = self.X.copy()
        X.flags.writeable = False
        estimator = self.make().fit(self.X[:, :5]).fit(X)
        estimator.transform(X)
        np.testing.assert_array_equal(X, self.X)
        self.same(estimator, self.make().fit(self.X))

    def test_names_of_columns_are_no_matter(self):
        frame = pytest.importorskip("pandas").DataFrame(self.X, columns=NAMES)
        self.same(self.make().fit(frame), self.make().fit(self.X))

    def test_a_failed_fit_leaves_all_as_it_was(self):
        estimator = self.make()
        with pytest.raises(ValueError):
            estimator.fit(self.bad)
        with pytest.raises(NotFittedError, match="not fitted yet"):
            estimator.transform(self.X)
        assert not [name for name in vars(estimator) if name.endswith("_")]
        expected, state = estimator.fit(self.X).transform(self.X), dict(vars(estimator))
        with pytest.raises(ValueError):
            estimator.fit(self.bad)
        assert vars(estimator) == state
        np.testing.assert_array_equal(estimator.transform(self.X), expected)

    @property
    def bad(self):
        """Return an input of another width that is refused when its values are looked at."""
        X = self.X[:, :5].astype(float)
        X[-1, -1] = np.nan
        return X
