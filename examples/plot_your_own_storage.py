"""
Your own storage of X: one byte for each value
==============================================

Measurements with 8 bits do not need 8 bytes.  Here each column is stored as integers from 0 to 255,
with a scale and an offset.  This takes an eighth of the memory of float64.  The class defines how
to multiply with such columns.  Fits in this process or on a cluster need nothing else.
"""

import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster
from sklearn.base import clone

from schmp_estimators import PrioritizedLasso, SparseGLM
from schmp_estimators.penalised import Storage


class Quantised(Storage):
    def __init__(self, codes, scales, offsets):
        self.codes, self.scales, self.offsets = codes, scales, offsets  # (p, n) uint8, (p,), (p,)
        self.shape, self.dtype = codes.shape[::-1], np.dtype(np.float64)

    @classmethod
    def of(cls, X):
        low, high = X.min(axis=0), X.max(axis=0)
        scales = np.where(high > low, (high - low) / 255.0, 1.0)
        return cls(np.rint((X - low) / scales).astype(np.uint8).T.copy(), scales, low)

    def rows(self, chosen):
        return Quantised(self.codes[:, chosen], self.scales, self.offsets)

    def take_dense(self, columns, rows=None):
        codes = self.codes[columns] if rows is None else self.codes[np.ix_(columns, rows)]
        return codes * self.scales[columns, None] + self.offsets[columns, None]

    def combine(self, columns, factors):
        found = np.full(self.n_rows, self.offsets[columns] @ factors)
        for column, factor in zip(columns, factors * self.scales[columns], strict=True):
            found += factor * self.codes[column]
        return found

    def gradient(self, vector, scope):
        columns = np.arange(self.n_columns) if scope is None else scope
        found = np.array([self.codes[column] @ vector for column in columns])
        return found * self.scales[columns] + self.offsets[columns] * vector.sum()

    def moments(self, weights, vector):
        weights = weights if len(weights) else np.ones(self.n_rows)
        columns = (self.take_dense(np.array([column]))[0] for column in range(self.n_columns))
        sums = [(values @ weights, values**2 @ weights, values @ vector) for values in columns]
        return tuple(np.array(sums).T)


# %%
# The same coefficients as for an array
# -------------------------------------
# ``to_array`` returns the quantised values as floats.  A fit to these floats is the same problem.
rng = np.random.default_rng(0)
X, truth = rng.normal(10.0, 3.0, size=(5000, 1000)), np.zeros(1000)
truth[:60:20] = truth[1:60:20] = [2.0, -1.5, 1.0]
y = X @ truth + rng.normal(size=len(X))
small = Quantised.of(X)
print(f"{small.codes.nbytes / 1e6:.0f} MB instead of {X.nbytes / 1e6:.0f} MB")

models = {
    "Lasso": PrioritizedLasso(0.3, tol=1e-10),
    "groups": SparseGLM(penalty="group", groups=np.arange(1000) // 20, alpha=0.2, tol=1e-10),
}
for name, model in models.items():
    here, there = clone(model).fit(small, y), clone(model).fit(small.to_array(), y)
    assert np.abs(here.coef_ - there.coef_).max() < 1e-6
    assert np.abs(here.predict(small) - there.predict(small.to_array())).max() < 1e-6
    print(f"{name}: {np.count_nonzero(here.coef_)} coefficients of 1000 are not zero")

# %%
# What quantising costs
# ---------------------
# The coefficients differ little from those of a fit to the values before rounding to 8 bits.
lasso = models["Lasso"]
found, exact = lasso.fit(small, y).coef_, clone(lasso).fit(X, y).coef_
figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
ax.axhline(0.0, color="#7a8a93", linewidth=0.8)
ax.plot(exact[:60], "o", mfc="none", label="float64")
ax.plot(found[:60], ".", label="8 bits")
ax.set(xlabel="Column", ylabel="Coefficient", title="Coefficients of the first 60 columns")
ax.legend()
plt.show()
print(f"Largest difference of a coefficient: {np.abs(found - exact).max():.4f}")
assert np.abs(found - exact).max() < 0.02

# %%
# On a cluster the same program gives bit-for-bit the same result.
with LocalCluster(n_workers=2, processes=False, dashboard_address=":0") as cluster, Client(cluster):
    assert (clone(lasso).fit(small, y).coef_ == found).all()
