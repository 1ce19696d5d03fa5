"""
Your own loss: the squared hinge
================================

This is a support vector machine with the squared hinge loss, max(0, 1 − yu)², and an L1 penalty.  A
loss returns its value at a prediction u, and its first and second derivatives.  If it also returns
its dual, fits have a :term:`duality gap`.  `SparseGLM` does the rest.
"""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from schmp_estimators import SparseGLM, schmp
from schmp_estimators.penalised import L1, Derivatives, ElasticNet, Level


@dataclass(frozen=True)
class SquaredHinge:
    smoothness = 2.0  # the largest curvature of a row of weight 1
    certified = True  # `dual` is one
    classifies = True  # y are labels, −1 and 1 for the loss

    def derivatives(self, decision, target, weights, intercept):
        missing = np.maximum(0.0, 1.0 - target * (decision + intercept))
        s = weights if len(weights) else np.ones_like(missing)
        slope, curvature = 2.0 * s * target * missing, 2.0 * s * (missing > 0.0)
        return Derivatives(Level(s @ missing**2, slope.sum(), curvature.sum()), slope, curvature)

    def dual(self, decision, target, weights, intercept, scale):
        part = scale * 2.0 * np.maximum(0.0, 1.0 - target * (decision + intercept))
        s = weights if len(weights) else np.ones_like(part)
        return s @ (part - 0.25 * part**2)


# %%
# It is right
# -----------
# We classify digits below five against the others, and compare the result with scikit-learn's
# LinearSVC.
X, digit = load_digits(return_X_y=True)
X, y = StandardScaler().fit_transform(X), np.where(digit < 5, 1.0, -1.0)
alpha = 10.0 / len(y)  # the loss is a mean over samples, that of LinearSVC a sum
ours = SparseGLM(SquaredHinge(), "l1", alpha, fit_intercept=False, tol=1e-10).fit(X, y)
found, coef = len(y) * ours.history_[-1]["objective"], ours.coef_[0]
peer = LinearSVC(
    penalty="l1", C=0.1, dual=False, fit_intercept=False, tol=1e-8, max_iter=100_000, random_state=0
)
peer.fit(X, y)


def objective(coef, intercept=0.0):
    return (
        10.0 * np.abs(coef).sum() + (np.maximum(0.0, 1.0 - y * (X @ coef + intercept)) ** 2).sum()
    )


print(
    f"Objective {found:.8f}, of LinearSVC {objective(peer.coef_[0]):.8f}; duality gap "
    f"{ours.dual_gap_[0]:.1e} a sample"
)
assert abs(objective(coef) / found - 1) < 1e-12
assert found <= objective(peer.coef_[0]) + 1e-8
assert ours.score(X, y) == peer.score(X, y)

# %%
# Its duality gap is right
# ------------------------
# We compute the dual objective by hand.  Its variables are weights of the rows, scaled down until
# no gradient exceeds the penalty.
part = 2.0 * np.maximum(0.0, 1.0 - y * (X @ coef))
part *= min(1.0, 10.0 / np.abs(X.T @ (y * part)).max())
gap = found - (part - part**2 / 4).sum()
print(f"Duality gap by hand {gap:.1e}")
assert -1e-9 <= gap <= 1e-10 * len(y) + 1e-9

# %%
# Other penalties and schedules work, too.  Here are the elastic net, and a schedule by priority.
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for label, options in {
    "resolve": {"penalty": L1(1.0)},
    "resolve, elastic net": {"penalty": ElasticNet(1.0, 2.0)},
    "by priority, 8 at a time": {"schedule": schmp.Priority(8), "random_state": 0},
}.items():
    model = SparseGLM(SquaredHinge(), alpha=alpha, tol=1e-6, max_iter=300, **options).fit(X, y)
    gaps = [max(record["dual_gap"], 1e-12) for record in model.history_]
    ax.loglog(
        [record["samples"] / X.size for record in model.history_], gaps, marker=".", label=label
    )
    assert model.dual_gap_[0] <= 1e-6 * 1.0
ax.set(title="Squared hinge on digits", xlabel="Passes over X", ylabel="Duality gap, per row")
ax.legend()
plt.show()
