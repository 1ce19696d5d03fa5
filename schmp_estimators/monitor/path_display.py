"""Plots along a path of penalties."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._optional_dependencies import check_matplotlib_support
from sklearn.utils.validation import check_is_fitted

from schmp_estimators.monitor.display import last_step

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: By the attribute that has a value for each fold: what penalties are called, and what the values
#: are.
Floats = NDArray[np.float64]
_SCORED = {
    "mse_path_": ("alpha", "Mean squared error"),
    "deviance_path_": ("alpha", "Deviance"),
    "scores_": ("C", "Score"),
}
#: Counts on top at most, and the least distance of two names, as a part of the height.
_MOST_COUNTS, _APART = 9, 0.045


@dataclass(eq=False, repr=False)
class PathDisplay:
    """Plot of coefficients, or of cross-validation errors or scores, along a path of penalties.

    Use `from_path` or `from_estimator` to make a display.  Penalties get weaker from left to right.

    Parameters
    ----------
    penalties : array-like of shape (n_penalties,)
        Values of alpha or C, on the horizontal axis.
    curves : array-like of shape (n_penalties, n_curves)
        Values on the vertical axis: errors or scores of folds, or coefficients of columns.
    name : {"alpha", "C"}
        Name of the penalty.
    value_name : str
        Label of the vertical axis.
    choices : dict of str to float, optional
        At most two penalties to mark, by name.  The mean of the curves and its standard error are
        then also drawn.
    counts : array-like of shape (n_penalties,), optional
        Numbers of non-zero coefficients, of which at most nine are written above the plot.
    labels : dict of int to str, optional
        Names of curves, by the index of the curve.  They are written at the ends of the curves.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    lines_ : list of matplotlib Line2D
        Lines of the curves.
    mean_ : matplotlib Line2D or None
        Mean of the curves; None without `choices`.
    errors_ : matplotlib collection or None
        Band of one standard error around `mean_`; None without `choices`.
    choices_ : list of matplotlib Line2D
        Lines that mark the `choices`.
    labels_ : list of matplotlib Text
        Names of curves.
    counts_ : matplotlib axis or None
        Axis with the numbers of non-zero coefficients; None without `counts`.

    See Also
    --------
    ConvergenceDisplay : Plot of the progress of one fit.

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

    penalties: Any
    curves: Any
    _: KW_ONLY
    name: str
    value_name: str
    choices: dict[str, float] | None = None
    counts: Any = None
    labels: dict[int, str] | None = None

    @classmethod
    def from_path(
        cls,
        penalties: Any,
        coefs: Any,
        *,
        name: str | None = None,
        names: Any = None,
        n_named: int = 8,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> PathDisplay:
        """Plot the coefficients along a path, with the names of the largest coefficients.

        Numbers of non-zero coefficients are written above the plot.

        Parameters
        ----------
        penalties : array-like of shape (n_penalties,)
            Falling values of alpha, or rising values of C.
        coefs : array-like of shape (n_features, n_penalties)
            Coefficients, as `prioritized_lasso_path` and `sparse_logistic_path` return them.
        name : {"alpha", "C"}, optional
            Name of the penalty.  By default, it is alpha if the values fall, and C if they rise.
        names : array-like of shape (n_features,), optional
            Names of the columns; by default "x0", "x1" and so on.
        n_named : int, default=8
            Maximum number of names to write: those of the largest coefficients at the end of the
            path.
        ax : matplotlib Axes, optional
            Where to draw; by default in a new figure.
        **kwargs : dict
            Arguments passed to ``Axes.plot``.

        Returns
        -------
        PathDisplay

        Raises
        ------
        ValueError
            If `coefs` does not have a column for each penalty and a row for each name.  If `name`
            is unknown.  If `n_named` is negative, or 0 with `names`.
        """
        check_matplotlib_support(f"{cls.__name__}.from_path")
        if n_named not in range(names is not None, np.iinfo(int).max):
            raise ValueError(
                f"n_named={n_named!r}; it is a number of names, at least 0, or at least 1 with "
                "names"
            )
        penalties = np.asarray(penalties, float)
        coefs = np.asarray(coefs, float)
        if coefs.ndim != 2 or penalties.shape != coefs.shape[1:]:
            raise ValueError(
                f"coefs has shape {coefs.shape}, and penalties {penalties.shape}; give one column "
                "of coefs for each penalty"
            )
        if name is None:
            name = "alpha" if penalties[0] >= penalties[-1] else "C"
        if name not in ("alpha", "C"):
            raise ValueError(f"name={name!r}; it must be 'alpha' or 'C'")
        names = (
            [f"x{j}" for j in range(len(coefs))] if names is None else [str(one) for one in names]
        )
        if len(names) != len(coefs):
            raise ValueError(
                f"names holds {len(names)} names; give one for each of the {len(coefs)} rows of "
                "coefs"
            )
        used = np.flatnonzero((coefs != 0.0).any(axis=1))
        ends = np.abs(coefs[used, -1])
        largest = [
            int(one) for one in np.argsort(-ends, kind="stable")[:n_named] if ends[one] > 0.0
        ]
        return cls(
            penalties,
            coefs[used].T,
            name=name,
            value_name="Coefficient",
            counts=np.count_nonzero(coefs, axis=0),
            labels={place: names[used[place]] for place in largest},
        ).plot(ax=ax, **kwargs)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        kind: str = "cv",
        names: Any = None,
        n_named: int = 8,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> PathDisplay:
        """Plot the errors, scores or coefficients of a cross-validated estimator along its path.

        Parameters
        ----------
        estimator : PrioritizedLassoCV, SparseLogisticRegressionCV, SparseGLMCV, \
                or a pipeline that ends with one
            Fitted estimator.
        kind : {"cv", "path"}, default="cv"
            "cv" plots the errors or scores of the folds, their mean, and the chosen penalties.
            "path" plots the coefficients of fits to all samples.
        names : array-like of shape (n_features,), optional
            Names of the columns for "path".  By default, they come from the pipeline or from the
            data frame that was fitted.
        n_named : int, default=8
            Maximum number of names to write, for "path".
        ax : matplotlib Axes, optional
            Where to draw; by default in a new figure.
        **kwargs : dict
            Arguments passed to ``Axes.plot`` for folds or coefficients.

        Returns
        -------
        PathDisplay

        Raises
        ------
        TypeError
            If the estimator is of another class.
        ValueError
            If there are several targets.  If there are more than two classes, for "path".  If
            `kind` is unknown.  If `names` or `n_named` are given for "cv".
        """
        check_matplotlib_support(f"{cls.__name__}.from_estimator")
        if kind not in ("cv", "path"):
            raise ValueError(f"kind={kind!r}; it must be 'cv' or 'path'")
        if kind == "cv" and (names is not None or n_named != 8):
            raise ValueError("names and n_named are for kind='path', but kind='cv'; leave them out")
        check_is_fitted(estimator)
        model, names = last_step(estimator, names)
        names = getattr(model, "feature_names_in_", None) if names is None else names
        found = next((one for one in _SCORED if hasattr(model, one)), None)
        if found is None:
            raise TypeError(
                f"{type(model).__name__} has chosen no penalty by cross-validation; give a "
                "PrioritizedLassoCV, a SparseLogisticRegressionCV or a SparseGLMCV, or the result "
                "of a path to from_path"
            )
        name, value_name = _SCORED[found]
        if np.ndim(getattr(model, f"{name}_")):
            raise ValueError(
                "the estimator has several targets, each with a path of its own; give that of one "
                "target"
            )
        penalties = getattr(model, f"{name}s_")
        values = getattr(model, found)
        if values.ndim > 2:  # of several L1 ratios
            row = list(model.l1_ratio).index(model.l1_ratio_)
            penalties = penalties[row] if penalties.ndim > 1 else penalties
            values = values[row]
        reached = ~np.isnan(np.atleast_2d(model.intercepts_path_)[0])
        penalties, values = penalties[reached], values[reached]
        coefs = model.coefs_path_[..., reached]
        if kind == "path":
            if coefs.ndim > 2:
                raise ValueError(
                    "there is a path for each of several classes; give coefs_path_[k] to from_path"
                )
            return cls.from_path(
                penalties, coefs, name=name, names=names, n_named=n_named, ax=ax, **kwargs
            )
        chosen = {choice: float(getattr(model, choice)) for choice in (f"{name}_", f"{name}_1se_")}
        counts = np.count_nonzero(coefs.any(axis=0) if coefs.ndim > 2 else coefs, axis=0)
        marks: dict[str, Any] = {"choices": chosen, "counts": counts}
        return cls(penalties, values, name=name, value_name=value_name, **marks).plot(
            ax=ax, **kwargs
        )

    def plot(self, *, ax: Axes | None = None, **kwargs: Any) -> PathDisplay:
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default in a new figure.
        **kwargs : dict
            Arguments passed to ``Axes.plot`` for each curve.

        Returns
        -------
        PathDisplay
            This object.
        """
        check_matplotlib_support(f"{type(self).__name__}.plot")
        import matplotlib.pyplot as plt  # noqa: PLC0415  (an optional extra)

        if ax is None:
            _, ax = plt.subplots()
        penalties = np.asarray(self.penalties, float)
        curves = np.asarray(self.curves, float)
        self.mean_: Any = None
        self.errors_: Any = None
        self.counts_: Any = None
        self.choices_: list[Any] = []
        self.labels_: list[Any] = []
        faint = {} if self.choices is None else {"color": "0.8", "linewidth": 0.8}
        self.lines_ = [ax.plot(penalties, curve, **{**faint, **kwargs})[0] for curve in curves.T]
        if self.choices is not None:
            self._draw_choices(ax, penalties, curves)
        ax.set_xscale("log")
        if self.name == "alpha" and not ax.xaxis_inverted():
            ax.invert_xaxis()
        if self.labels:
            self._write_labels(ax, curves)
        if self.counts is not None:
            self._write_counts(ax, penalties)
        ax.set_xlabel(self.name)
        ax.set_ylabel(self.value_name)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _draw_choices(self, ax: Axes, penalties: Floats, curves: Floats) -> None:
        mean = curves.mean(axis=1)
        count = curves.shape[1]
        error = curves.std(axis=1, ddof=1) / np.sqrt(count) if count > 1 else np.zeros_like(mean)
        [self.mean_] = ax.plot(penalties, mean, color="C0", label="mean")
        self.errors_ = ax.fill_between(
            penalties,
            mean - error,
            mean + error,
            color="C0",
            alpha=0.2,
            label="± one standard error",
        )
        for (choice, at), style in zip((self.choices or {}).items(), ("-", "--"), strict=False):
            self.choices_.append(
                ax.axvline(at, color="0.3", linestyle=style, label=f"{choice} = {at:.3g}")
            )
        ax.legend()

    def _write_labels(self, ax: Axes, curves: Floats) -> None:
        """Write names beside the ends of curves, apart from each other."""
        low, high = ax.get_ylim()
        places = sorted(self.labels or {}, key=lambda place: curves[-1, place])
        heights = [(curves[-1, place] - low) / (high - low) for place in places]
        for i in range(1, len(heights)):
            heights[i] = max(heights[i], heights[i - 1] + _APART)
        over = max(0.0, heights[-1] - 1.0)
        for i in reversed(
            range(len(heights))
        ):  # those that would be above the picture go down again
            heights[i] = (
                min(heights[i], 1.0 - (len(heights) - 1 - i) * _APART) if over else heights[i]
            )
        for place, height in zip(places, heights, strict=True):
            text = (self.labels or {})[place]
            color = self.lines_[place].get_color()
            options: dict[str, Any] = {
                "transform": ax.transAxes,
                "va": "center",
                "fontsize": "small",
                "color": color,
            }
            self.labels_.append(ax.text(1.01, height, text, **options))

    def _write_counts(self, ax: Axes, penalties: Floats) -> None:
        """Write the numbers of coefficients above some penalties."""
        step = -(-len(penalties) // _MOST_COUNTS)
        self.counts_ = ax.secondary_xaxis("top")
        self.counts_.set_xscale("log")
        self.counts_.set_xticks(
            penalties[::step], [str(int(count)) for count in np.asarray(self.counts)[::step]]
        )
        self.counts_.minorticks_off()
        self.counts_.set_xlabel("Coefficients that are not zero")
