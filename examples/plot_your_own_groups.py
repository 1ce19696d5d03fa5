"""
Your own penalty in blocks: sparse groups
=========================================

A group penalty sets the coefficients of whole groups of columns to zero.  Often only a few columns
of the other groups matter.  The *sparse group lasso* (N. Simon, J. Friedman, T. Hastie and R.
Tibshirani, Journal of Computational and Graphical Statistics 2013) selects groups and columns.  Its
penalty is f(τ‖β_g‖₁ + (1 − τ)‖β_g‖₂) for each group g, with a strength f and a share τ.  We write
this penalty as one class.  The solver adds the :term:`duality gap`, paths, Dask and checkpoints.
"""

from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np

from schmp_estimators import SparseGLM, sparse_glm_path


class SparseGroups(NamedTuple):
    strengths: np.ndarray  # f, one for each group
    columns: np.ndarray  # columns, group after group
    starts: np.ndarray  # where each group begins, and the end
    share: float  # τ
    positive = False
    certified = True  # there is a duality gap
    in_blocks = True

    def scaled(self, factor):
        return self._replace(strengths=factor * self.strengths)

    def block_prox(self, number, aims, norm, out):  # minimises norm/2·‖w‖² − aimsᵀw + P(w)
        alone, together = self.share * self.strengths[number], 0.0
        for t in range(len(aims)):
            out[t] = np.sign(aims[t]) * max(abs(aims[t]) - alone, 0.0)
            together += out[t] * out[t]
        together, limit = np.sqrt(together), (1.0 - self.share) * self.strengths[number]
        kept = (1.0 - limit / together) / norm if together > limit else 0.0
        for t in range(len(aims)):
            out[t] *= kept

    def block_level(self, number, slopes):  # the multiple of the penalty from which on w = 0
        low, high = 0.0, 0.0
        for t in range(len(slopes)):
            high += abs(slopes[t])
        high /= self.strengths[number]
        for _ in range(60):
            level = 0.5 * (low + high)
            left, alone = 0.0, self.share * level * self.strengths[number]
            for t in range(len(slopes)):
                left += max(abs(slopes[t]) - alone, 0.0) ** 2
            if np.sqrt(left) > (1.0 - self.share) * level * self.strengths[number]:
                low = level
            else:
                high = level
        return high

    def block_value(self, number, coef):
        alone, together = 0.0, 0.0
        for t in range(len(coef)):
            alone += abs(coef[t])
            together += coef[t] * coef[t]
        return self.strengths[number] * (
            self.share * alone + (1.0 - self.share) * np.sqrt(together)
        )


# %%
# Few columns of few groups
# -------------------------
# Three of fifty groups have an effect, each by two of its eight columns.
rng = np.random.default_rng(0)
n_groups, width = 50, 8
X = rng.normal(size=(150, n_groups * width))
truth = np.zeros((n_groups, width))
truth[[3, 17, 41], :2] = [[2.0, -1.5], [-2.0, 1.0], [1.5, 1.5]]
y = X @ truth.ravel() + rng.normal(size=150)

columns, starts = np.arange(X.shape[1]), width * np.arange(n_groups + 1)
factors = np.full(n_groups, np.sqrt(width))
penalties = {
    "L1": "l1",
    "groups": SparseGroups(factors, columns, starts, 0.0),
    "sparse groups": SparseGroups(factors, columns, starts, 0.5),
}
figure, axes = plt.subplots(3, 1, figsize=(8, 6), sharex=True, layout="constrained")
wrong = {}
for ax, (name, penalty) in zip(axes, penalties.items(), strict=True):
    alphas, coefs, intercepts, gaps = sparse_glm_path(X, y, "squared", penalty, alphas=40, eps=0.02)
    errors = ((coefs - truth.ravel()[:, None]) ** 2).sum(axis=0)
    best = coefs[:, errors.argmin()].reshape(truth.shape)
    wrong[name] = int(np.count_nonzero(best[truth == 0.0]))
    ax.plot(best.ravel(), ".", label=f"{name}: {wrong[name]} nonzero that should be zero")
    ax.plot(np.flatnonzero(truth), truth[truth != 0.0], "x", color="#7a8a93", label="truth")
    ax.legend(loc="upper right")
    print(f"{name:14s} squared error {errors.min():.2f}, largest gap {gaps.max():.1e}")
axes[-1].set_xlabel("Column")
axes[1].set_ylabel("Coefficient")
plt.show()
assert wrong["sparse groups"] < wrong["groups"]

# %%
# With a share τ of one, the penalty is the L1 penalty.  Then the solver for groups and the solver
# for single columns agree.
alone = SparseGroups(np.ones(n_groups), columns, starts, 1.0)
blocks = SparseGLM("squared", alone, alpha=0.2, tol=1e-10).fit(X, y)
single = SparseGLM("squared", "l1", alpha=0.2, tol=1e-10).fit(X, y)
print(f"largest difference {np.abs(blocks.coef_ - single.coef_).max():.0e}")
assert np.allclose(blocks.coef_, single.coef_, atol=1e-5)
