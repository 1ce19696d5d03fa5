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

    def test_constructor_keeps_what_it_is_given(self):
        parameters = self.make().get_params()
        marked = {name: object() for name in parameters}
        assert type(self.make())(**marked).get_params() == marked

    def test_fit_returns_itself_and_leaves_parameters_alone(self):
        estimator = self.make()
        before = {name: repr(value) for name, value in estimator.get_params().items()}
        assert estimator.fit(self.X) is estimator
        assert {name: repr(value) for name, value in estimator.get_params().items()} == before

    def test_clone_of_a_fitted_one_is_unfitted_and_fits_the_same(self):
        fitted = self.make().fit(self.X)
        copied = clone(fitted)
        with pytest.raises(NotFittedError):
            copied.transform(self.X)
        self.same(copied.fit(self.X), fitted)

    def test_pickle_keeps_parameters_model_and_results(self):
        fitted = self.make().fit(self.X)
        loaded = pickle.loads(pickle.dumps(fitted))
        assert loaded.get_params() == fitted.get_params()
        self.same(loaded, fitted)
        np.testing.assert_array_equal(loaded.transform(self.X), fitted.transform(self.X))

    def test_unfitted_pickle(self):
        loaded = pickle.loads(pickle.dumps(self.make()))
        self.same(loaded.fit(self.X), self.make().fit(self.X))

    def test_set_params_is_the_constructor(self):
        parameters = self.make().get_params()
        changed = type(self.make())().set_params(**parameters)
        self.same(changed.fit(self.X), self.make().fit(self.X))

    def test_unknown_parameters_are_refused(self):
        with pytest.raises(ValueError, match="Invalid parameter 'colour'"):
            self.make().set_params(colour="red")
        with pytest.raises(TypeError, match="colour"):
            type(self.make())(colour="red")

    def test_the_input_is_not_written_to(self):
        X = self.X.copy()
        X.flags.writeable = False
        estimator = self.make().fit(X)
        estimator.transform(X)
        np.testing.assert_array_equal(X, self.X)

    def test_a_second_fit_forgets_the_first(self):
        estimator = self.make().fit(self.X[:, :5])
        self.same(estimator.fit(self.X), self.make().fit(self.X))

    def test_feature_names(self):
        pd = pytest.importorskip("pandas")
        frame = pd.DataFrame(self.X, columns=NAMES)
        estimator = self.make().fit(frame)
        assert estimator.feature_names_in_.tolist() == NAMES
        self.same(estimator, self.make().fit(self.X))
        with pytest.raises(ValueError, match="feature names should match"):
            estimator.transform(frame[NAMES[::-1]])
        with pytest.warns(UserWarning, match="does not have valid feature names"):
            estimator.transform(self.X)

    def test_names_of_the_outputs(self):
        estimator = self.make().fit(self.X)
        names = estimator.get_feature_names_out()
        assert names.tolist() == [
            f"{type(estimator).__name__.lower()}{i}" for i in range(estimator.transform(self.X).shape[1])
        ]

    def test_set_output(self):
        pytest.importorskip("pandas")
        estimator = self.make().fit(self.X)
        plain = estimator.transform(self.X)
        frame = estimator.set_output(transform="pandas").transform(self.X)
        assert frame.columns.tolist() == estimator.get_feature_names_out().tolist()
        np.testing.assert_array_equal(frame.to_numpy(), plain)
        again = self.make().set_output(transform="pandas").fit_transform(self.X)
        assert again.columns.tolist() == frame.columns.tolist()

    def test_unfitted(self):
        for method in ("transform", "get_feature_names_out"):
            with pytest.raises(NotFittedError, match="not fitted yet"):
                getattr(self.make(), method)(self.X)

    def test_repr_names_what_was_changed(self):
        estimator = self.make()
        assert repr(estimator).startswith(f"{type(estimator).__name__}(")
        assert "estimator" in estimator._repr_html_()

    def test_a_failed_fit_leaves_it_unfitted(self):
        estimator = self.make()
        with pytest.raises(ValueError):
            estimator.fit(self.bad)
        with pytest.raises(NotFittedError, match="not fitted yet"):
            estimator.transform(self.X)
        assert not [name for name in vars(estimator) if name.endswith("_")]

    def test_a_failed_fit_leaves_the_last_fit_as_it_was(self):
        estimator = self.make().fit(self.X)
        expected, state = estimator.transform(self.X), dict(vars(estimator))
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
