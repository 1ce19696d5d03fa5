"""Plots along a path of penalties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._optional_dependencies import check_matplotlib_support
from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: By the attribute that holds the penalties: that with a value for each fold, the choices, what the values are called.
_SCORED = {
    "alphas_": ("mse_path_", ("alpha_", "alpha_1se_"), "Mean squared error"),
    "Cs_": ("scores_", ("C_", "C_1se_"), "Score"),
}


class PathDisplay:
    """Coefficients along a path of penalties, or what cross-validation has found along it.

    Use `from_path` or `from_estimator` to make one.  Penalties get weaker from left to right.

    Parameters
    ----------
    penalties : array-like of shape (n_penalties,)
        Abscissae: values of alpha or C.
    curves : array-like of shape (n_penalties, n_curves)
        Ordinates: coefficients, those that are zero everywhere left out, or values of folds.
    name : {"alpha", "C"}
        What the penalties are.
    value_name : str
        What the curves are.
    choices : dict of str to float, optional
        Penalties to be marked, by their names; then the mean of the curves and its standard error are drawn.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    lines_ : list of matplotlib Line2D
        One of each curve.
    mean_ : matplotlib Line2D or None
        Mean of the curves, with `choices`.
    errors_ : matplotlib collection or None
        One standard error below and above it.
    choices_ : list of matplotlib Line2D
        Where `choices` are.

    See Also
    --------
    ConvergenceDisplay : How one fit went.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators import PathDisplay, PrioritizedLassoCV, prioritized_lasso_path
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 20))
    >>> y = X[:, 0] - X[:, 1] + rng.normal(size=60)
    >>> alphas, coefs, *_ = prioritized_lasso_path(X, y, alphas=10, eps=0.3)
    >>> PathDisplay.from_path(alphas, coefs).ax_.get_ylabel()
    'Coefficient'
    >>> display = PathDisplay.from_estimator(PrioritizedLassoCV(alphas=10).fit(X, y))
    >>> display.ax_.get_ylabel()
    'Mean squared error'
    """

    def __init__(
        self,
        penalties: Any,
        curves: Any,
        *,
        name: str,
        value_name: str,
        choices: dict[str, float] | None = None,
    ) -> None:
        self.penalties, self.curves = penalties, curves
        self.name, self.value_name, self.choices = name, value_name, choices

    @classmethod
    def from_path(
        cls, penalties: Any, coefs: Any, *, name: str | None = None, ax: Axes | None = None, **kwargs: Any
    ) -> PathDisplay:
        """Plot the coefficients along a path.

        Parameters
        ----------
        penalties : array-like of shape (n_penalties,)
            Falling values of alpha, or rising values of C.
        coefs : array-like of shape (n_features, n_penalties)
            Coefficients, as `prioritized_lasso_path` and `sparse_logistic_path` return them.
        name : {"alpha", "C"}, optional
            What the penalties are; by default alpha if they fall, and C if they rise.
        ax : matplotlib Axes, optional
            Where to draw; by default in a new figure.
        **kwargs : dict
            Passed to ``Axes.plot``.

        Returns
        -------
        PathDisplay

        Raises
        ------
        ValueError
            If there are not as many penalties as columns of `coefs`, or `name` is unknown.
        """
        check_matplotlib_support(f"{cls.__name__}.from_path")
        penalties, coefs = np.asarray(penalties, float), np.asarray(coefs, float)
        if coefs.ndim != 2 or penalties.shape != coefs.shape[1:]:
            raise ValueError(
                f"coefs has shape {coefs.shape}, and penalties {penalties.shape}; give one column of coefs for each "
                "penalty"
            )
        if name is None:
            name = "alpha" if penalties[0] >= penalties[-1] else "C"
        if name not in ("alpha", "C"):
            raise ValueError(f"name={name!r}; it must be 'alpha' or 'C'")
        used = coefs[(coefs != 0.0).any(axis=1)]
        return cls(penalties, used.T, name=name, value_name="Coefficient").plot(ax=ax, **kwargs)

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None, **kwargs: Any) -> PathDisplay:
        """Plot what each fold has found along the path of a cross-validated estimator, the mean, and what is chosen.

        Parameters
        ----------
        estimator : PrioritizedLassoCV or SparseLogisticRegressionCV
            Fitted.
        ax : matplotlib Axes, optional
            Where to draw; by default in a new figure.
        **kwargs : dict
            Passed to ``Axes.plot`` for the folds.

        Returns
        -------
        PathDisplay

        Raises
        ------
        TypeError
            If it is another estimator.
        """
        check_matplotlib_support(f"{cls.__name__}.from_estimator")
        check_is_fitted(estimator)
        for penalties, (values, choices, value_name) in _SCORED.items():
            if hasattr(estimator, penalties) and hasattr(estimator, values):
                chosen = {choice: float(getattr(estimator, choice)) for choice in choices}
                return cls(
                    getattr(estimator, penalties),
                    getattr(estimator, values),
                    name=penalties[:-2],
                    value_name=value_name,
                    choices=chosen,
                ).plot(ax=ax, **kwargs)
        raise TypeError(
            f"{type(estimator).__name__} has chosen no penalty by cross-validation; give a PrioritizedLassoCV or a "
            "SparseLogisticRegressionCV, or the result of a path to from_path"
        )

    def plot(self, *, ax: Axes | None = None, **kwargs: Any) -> PathDisplay:
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default in a new figure.
        **kwargs : dict
            Passed to ``Axes.plot`` for each curve.

        Returns
        -------
        PathDisplay
            This object.
        """
        check_matplotlib_support(f"{type(self).__name__}.plot")
        import matplotlib.pyplot as plt  # noqa: PLC0415  (an optional extra)

        if ax is None:
            _, ax = plt.subplots()
        penalties, curves = np.asarray(self.penalties, float), np.asarray(self.curves, float)
        self.mean_: Any = None
        self.errors_: Any = None
        self.choices_: list[Any] = []
        faint = {} if self.choices is None else {"color": "0.8", "linewidth": 0.8}
        self.lines_ = [ax.plot(penalties, curve, **{**faint, **kwargs})[0] for curve in curves.T]
        if self.choices is not None:
            self._draw_choices(ax, penalties, curves)
        ax.set_xscale("log")
        if self.name == "alpha" and not ax.xaxis_inverted():
            ax.invert_xaxis()
        ax.set_xlabel(self.name)
        ax.set_ylabel(self.value_name)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _draw_choices(self, ax: Axes, penalties: NDArray[np.float64], curves: NDArray[np.float64]) -> None:
        mean, count = curves.mean(axis=1), curves.shape[1]
        error = curves.std(axis=1, ddof=1) / np.sqrt(count) if count > 1 else np.zeros_like(mean)
        [self.mean_] = ax.plot(penalties, mean, color="C0", label="mean")
        self.errors_ = ax.fill_between(
            penalties, mean - error, mean + error, color="C0", alpha=0.2, label="± one standard error"
        )
        for (choice, at), style in zip((self.choices or {}).items(), ("-", "--"), strict=False):
            self.choices_.append(ax.axvline(at, color="0.3", linestyle=style, label=f"{choice} = {at:.3g}"))
        ax.legend()
