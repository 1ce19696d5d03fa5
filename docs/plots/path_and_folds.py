import matplotlib.pyplot as plt
import numpy as np

from schmp_estimators import PathDisplay, PrioritizedLassoCV, prioritized_lasso_path

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 20))
y = 2 * X[:, 3] - X[:, 7] + rng.normal(size=120)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
PathDisplay.from_path(*prioritized_lasso_path(X, y, eps=0.01)[:2], ax=left)
PathDisplay.from_estimator(PrioritizedLassoCV(cv=5, eps=0.01).fit(X, y), ax=right)
