"""Plots of how a fit went."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from sklearn.utils._optional_dependencies import check_matplotlib_support
from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def last_step(estimator: Any, names: Any) -> tuple[Any, Any]:
    """Return the last step of a pipeline, and names of the columns that it is fitted to.

    There are names if the steps in front know them.
    """
    if not hasattr(estimator, "steps"):
        return estimator, names
    if names is None and len(estimator.steps) > 1:
        with suppress(AttributeError, ValueError):  # a step that gives no names
            names = estimator[:-1].get_feature_names_out()
    return estimator[-1], names


_AXES = {"iterations": "Iterations", "seconds": "Seconds", "samples": "Data samples operated upon"}


@dataclass(eq=False, repr=False)
class ConvergenceDisplay:
    """Plot of the objective of a fit against iterations, seconds or data samples processed.

    An iteration is a pass of a topic model over all tokens, an epoch of `ModelParallelMF`, a
    portion of columns of `DistributedSLIM`, or a step of a linear model.

    Kim et al. (EuroSys 2016, section 5) compare schedules by plots of the objective against data
    samples and against time.  A plot of samples against seconds shows the throughput.

    Use `from_estimator` to make a display.

    Parameters
    ----------
    x : list of float
        Values on the horizontal axis.
    y : list of float
        Values on the vertical axis.
    x_name, y_name : str
        Names of `x` and `y` in ``history_``.
    estimator_name : str, optional
        Name for the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    line_ : matplotlib Line2D

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators import ConvergenceDisplay, DistributedLDA
    >>> X = np.random.default_rng(0).poisson(1.0, (60, 30))
    >>> lda = DistributedLDA(3, max_iter=20, evaluate_every=2, random_state=0).fit(X)
    >>> display = ConvergenceDisplay.from_estimator(lda, x="samples")
    >>> display.ax_.get_xlabel()
    'Data samples operated upon'
    """

    x: list[float]
    y: list[float]
    _: KW_ONLY
    x_name: str
    y_name: str
    estimator_name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        x: str = "iterations",
        y: str | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> ConvergenceDisplay:
        """Plot the history of a fitted estimator.

        Parameters
        ----------
        estimator : estimator instance
            A fitted estimator with ``history_``.
        x : {"iterations", "seconds", "samples"}, default="iterations"
            Horizontal axis: iterations, seconds since the first iteration began, or data samples
            processed.
        y : str, optional
            Entry of the records in ``history_`` for the vertical axis.  By default it is the
            objective, which some fits record only with `evaluate_every`.
        name : str, optional
            Name for the legend; by default the name of the estimator's class.
        ax : matplotlib Axes, optional
            Axes to draw in; by default those of a new figure.
        **kwargs : dict
            Passed to ``Axes.plot``.

        Returns
        -------
        ConvergenceDisplay

        Raises
        ------
        ValueError
            If `x` is unknown, or no record has an entry `y`.
        """
        check_matplotlib_support(f"{cls.__name__}.from_estimator")
        check_is_fitted(estimator, "history_")
        if x not in _AXES:
            raise ValueError(f"x={x!r}; it must be one of {sorted(_AXES)}")
        y = estimator._objective if y is None else y
        records = [record for record in estimator.history_ if y in record]
        if not records:
            known = sorted({key for record in estimator.history_ for key in record} - set(_AXES))
            raise ValueError(
                f"no record of history_ has {y!r}, only {known}; name one of these as y, "
                "or fit with evaluate_every=1 to have the objective recorded"
            )
        points = [[record[axis] for record in records] for axis in (x, y)]
        display = cls(*points, x_name=x, y_name=y, estimator_name=name or type(estimator).__name__)
        return display.plot(ax=ax, **kwargs)

    def plot(
        self, *, ax: Axes | None = None, name: str | None = None, **kwargs: Any
    ) -> ConvergenceDisplay:
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw in; by default those of a new figure.
        name : str, optional
            Name for the legend.
        **kwargs : dict
            Passed to ``Axes.plot``.

        Returns
        -------
        ConvergenceDisplay
            This object.
        """
        check_matplotlib_support(f"{type(self).__name__}.plot")
        import matplotlib.pyplot as plt  # noqa: PLC0415  (an optional extra)

        if ax is None:
            _, ax = plt.subplots()
        [self.line_] = ax.plot(self.x, self.y, **{"label": name or self.estimator_name, **kwargs})
        ax.set_xlabel(_AXES[self.x_name])
        ax.set_ylabel(self.y_name.replace("_", " ").capitalize())
        if self.line_.get_label() is not None:
            ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self
