"""
Which coefficients next?
========================

Coordinate descent may visit coefficients in any order.  In the simplest orders, coefficients take
turns (Lasso-RR) or are drawn at random (Shotgun, Bradley et al., ICML 2011).  STRADS (Lee et al.,
NIPS 2014) prefers coefficients that changed most, and leaves out columns that are correlated with
them.  Our default, ``"resolve"``, solves the problem for a growing :term:`working set` of columns.
The figure repeats the comparison of the papers.  The data are generated genotypes, whose
neighbouring columns are correlated, and sparse data as in Lee et al.
"""

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from schmp_estimators import PrioritizedLasso, schmp

warnings.simplefilter(
    "ignore", ConvergenceWarning
)  # the slow schedules will not reach the tolerance
schedules = {
    "resolve": "resolve",
    "priority": schmp.Priority(4),
    "random": schmp.Random(4),
    "round_robin": schmp.RoundRobin(4),
}
names = tuple(schedules)
rng = np.random.default_rng(0)


def make_genotypes(n=300, p=1000, block=25, founders=6):
    """Return int8 counts 0, 1, 2.

    Within a block of columns everybody inherits from two of a few founders.
    """
    blocks = []
    for _ in range(p // block):
        founder = rng.random((founders, block)) < rng.uniform(0.1, 0.5)
        blocks.append(founder[rng.integers(0, founders, (2, n))].sum(axis=0, dtype=np.int8))
    return np.hstack(blocks)


def make_sparse(n=500, p=1000, stored=25):
    """Return columns of 25 uniform values (Lee et al., section 5.1).

    One in ten is a noisy copy of its neighbour.
    """
    rows, values = np.empty((p, stored), int), rng.random((p, stored))
    for j in range(p):
        if j and rng.random() < 0.1:
            rows[j], values[j] = rows[j - 1], 0.9 * values[j - 1] + 0.1 * values[j]
        else:
            rows[j] = rng.choice(n, stored, replace=False)
    return sp.csc_array(
        (values.ravel(), rows.ravel(), np.arange(0, p * stored + 1, stored)), shape=(n, p)
    )


def fit_all(X):
    """Fit every schedule; return their records and the minimum."""
    signal = X[:, rng.choice(X.shape[1], 30, replace=False)] @ rng.normal(size=30)
    y = signal + 0.5 * signal.std() * rng.normal(size=len(signal))
    alpha = np.abs(X.T @ (y - y.mean())).max() / len(y) / 10
    exact = PrioritizedLasso(alpha, tol=1e-12).fit(X, y)
    fits = {
        name: PrioritizedLasso(alpha, schedule=schedule, max_iter=15, tol=1e-6, random_state=0)
        for name, schedule in schedules.items()
    }
    # the first of two fits loads the compiled kernels
    return {
        name: lasso.fit(X, y).fit(X, y).history_ for name, lasso in fits.items()
    }, exact.history_[-1]["objective"]


data = {"Genotypes, 300 × 1000": make_genotypes(), "Sparse recipe, 500 × 1000": make_sparse()}
fits = {name: fit_all(X) for name, X in data.items()}

# %%
# All schedules except "resolve" update four coefficients at a time.  The upper pictures show
# progress against passes over the data.  The passes include all work on entries of X, such as
# checks for correlation and the gradients by which we evaluate every schedule.  "resolve" solves a
# small dense problem in one call, which is shown as a single point.
colours = dict(zip(names, plt.rcParams["axes.prop_cycle"].by_key()["color"], strict=False))
figure, axes = plt.subplots(2, 2, figsize=(9.5, 6.4), sharey="col", layout="constrained")
reached = {}
for (top, bottom), (title, (histories, best)) in zip(axes.T, fits.items(), strict=True):
    size = np.prod(data[title].shape)
    start = (
        max(history[0]["objective"] for history in histories.values()) - best
    )  # all coefficients are zero
    for name, history in histories.items():
        left = [max((record["objective"] - best) / start, 1e-16) for record in history]
        top.plot(
            [record["samples"] / size for record in history],
            left,
            ".-",
            color=colours[name],
            label=name,
        )
        bottom.plot(
            [max(record["seconds"], 1e-4) for record in history], left, ".-", color=colours[name]
        )
        reached[title, name] = left[-1]
    top.set(
        title=title,
        yscale="log",
        ylim=(1e-9, 3),
        xlabel="Passes over the data",
        ylabel="Objective above its minimum",
    )
    bottom.set(yscale="log", xscale="log", xlabel="Seconds", ylabel="Objective above its minimum")
axes[0, 0].legend()
plt.show()

# %%
for title in data:
    print(title, {name: f"{reached[title, name]:.0e}" for name in names})
    assert reached[title, "resolve"] < 1e-6
    assert reached[title, "priority"] < 0.2 * reached[title, "random"]
