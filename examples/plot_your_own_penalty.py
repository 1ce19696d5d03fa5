"""
Your own penalty: MCP
=====================

The L1 penalty shrinks large coefficients by as much as small ones.  The *minimax concave penalty*
(Zhang, Annals of Statistics 2010) shrinks large ones less.  For a coefficient b it is
``λ|b| − b²/2γ`` if ``|b|`` is at most γλ, and constant beyond.  This penalty is not convex, so
there is no :term:`duality gap`.  The fit ends when no single coefficient can be improved.
`SparseGLM` has this penalty as ``penalty="mcp"``.  Here we write it ourselves.
"""

from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

from schmp_estimators import SparseGLM
from schmp_estimators.penalised import at, weigh


class MCP(NamedTuple):
    strengths: float  # one for all columns, or an array with one for each
    gamma: float
    positive = False
    certified = False  # no duality gap, and no Newton steps

    def prox(
        self, j, aim, norm
    ):  # compiled: the minimiser of norm/2·b² − aim·b plus the penalty of b
        strength, size, curved = at(self.strengths, j), abs(aim), self.gamma * norm
        if size > strength * max(curved, np.sqrt(curved)):
            return aim / norm
        if curved > 1.0:
            return np.sign(aim) * max(size - strength, 0.0) / (norm - 1.0 / self.gamma)
        return 0.0

    def value(self, coef):  # compiled, too
        inner = np.minimum(np.abs(coef), self.gamma * self.strengths)
        return weigh(self.strengths, inner) - 0.5 * (inner * inner).sum() / self.gamma

    def tilt(self, coef):  # the derivative of what there is beside λ|b|
        return -np.sign(coef) * np.minimum(np.abs(coef) / self.gamma, self.strengths)

    def scaled(self, factor):
        return self._replace(strengths=factor * self.strengths, gamma=self.gamma / factor)


# %%
# Less bias
# ---------
# Eight of 400 coefficients are not zero.  Both penalties find them, but the L1 penalty makes each
# smaller by about λ.
rng = np.random.default_rng(0)
X, truth = rng.normal(size=(200, 400)), np.zeros(400)
truth[::50] = rng.choice([-3.0, -2.0, 2.0, 3.0], 8)
y = X @ truth + rng.normal(size=200)
alpha = 0.3
lasso = SparseGLM("squared", "l1", alpha).fit(X, y)
mcp = SparseGLM("squared", MCP(1.0, gamma=3.0 * alpha), alpha, tol=1e-10).fit(
    X, y
)  # alpha times it is MCP(alpha, 3)

figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
places = np.arange(8)
ax.axhline(0.0, color="#7a8a93", linewidth=0.8)
for shift, found, label in (-0.15, lasso, "L1"), (0.15, mcp, "MCP"):
    error = np.sign(truth[::50]) * (found.coef_ - truth)[::50]
    ax.vlines(places + shift, 0.0, error, color="#cfd6da")
    ax.plot(places + shift, error, "o", label=label)
ax.set(
    title="Error of each coefficient, towards larger ones",
    xlabel="Coefficient",
    ylabel="Estimate − truth",
)
ax.legend()
plt.show()
print(
    f"Largest error {np.abs(lasso.coef_ - truth).max():.2f} with L1, "
    f"{np.abs(mcp.coef_ - truth).max():.2f} with MCP"
)
assert np.abs(mcp.coef_ - truth).max() < 0.5 * np.abs(lasso.coef_ - truth).max()

# %%
# How good is the solution?
# -------------------------
# ``dual_gap_`` is NaN.  ``stationarity_`` estimates by how much the objective could still fall if
# single coefficients are updated.  We check it by brute force.
assert np.isnan(mcp.dual_gap_) and mcp.stationarity_ <= 1e-10 * (y**2).mean()
penalty, residual, grid = (
    MCP(alpha, 3.0),
    y - X @ mcp.coef_ - mcp.intercept_,
    np.linspace(-4, 4, 2001),
)
best = np.inf
for j in range(400):
    moved = grid - mcp.coef_[j]
    loss = (-moved * (X[:, j] @ residual) + 0.5 * moved**2 * (X[:, j] @ X[:, j])) / len(y)
    best = min(
        best,
        (loss + [penalty.value(np.array([b])) for b in grid]).min()
        - penalty.value(mcp.coef_[j : j + 1]),
    )
objective = mcp.history_[-1]["objective"]
print(f"The best step on a grid lowers the objective by {max(0.0, -best):.1e} of {objective:.3f}")
assert best > -1e-9 * objective

# %%
# On a cluster the same program gives bit-for-bit the same result.
with LocalCluster(n_workers=2, processes=False, dashboard_address=":0") as cluster, Client(cluster):
    there = SparseGLM("squared", MCP(1.0, gamma=3.0 * alpha), alpha, tol=1e-10).fit(X, y)
assert (there.coef_ == mcp.coef_).all()
