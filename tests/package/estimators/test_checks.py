"""scikit-learn's own checks of all nine estimators, none excused.

One setting of each runs with every change; many more, also with the array API switched on, run with
``python -m pytest -m "checks and slow"``.
"""

import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

import schmp_estimators as se

pytestmark = [
    pytest.mark.checks,
    # Checked only where SciPy was imported with the array API switched on, see the last test.
    pytest.mark.filterwarnings(
        "ignore:Skipping check check_array_api_input:sklearn.exceptions.SkipTestWarning"
    ),
    # They pass y to all; `ModelParallelMF` says that it does not use one beside a matrix.
    pytest.mark.filterwarnings("ignore:y is not used:UserWarning"),
]

ONE_OF_EACH = [
    se.DistributedLDA(max_iter=5),
    se.DistributedSLIM(),
    se.ModelParallelMF(),
    se.PrioritizedLasso(alpha=0.1),
    se.PrioritizedLassoCV(alphas=3, cv=2),
    se.SparseGLM(alpha=0.1),
    se.SparseGLMCV(alphas=3, cv=2),
    se.SparseLogisticRegression(),
    se.SparseLogisticRegressionCV(Cs=[1.0], cv=2),
]

# Without an intercept classes cannot be weighted as check_class_weight_classifiers wants:
# scikit-learn's own LogisticRegression(solver="liblinear", fit_intercept=False, l1_ratio=1) fails
# it, too.
MANY = [
    se.DistributedLDA(3, sampler="fplus", max_iter=3, n_shards=2),
    se.DistributedLDA(3, sampler="hybrid", max_iter=3),
    se.DistributedLDA(
        max_iter=3, sampler="warp", n_shards=3, n_jobs=2, mh_steps=1, evaluate_every=1, tol=1e-3
    ),
    se.DistributedLDA(3, max_iter=4, init="tempered", random_state=3),
    se.ModelParallelMF(solver="ccd", positive=True, n_jobs=2, max_iter=5),
    se.ModelParallelMF(solver="ccd", unobserved_weight=0.3, n_shards=2, max_iter=5),
    se.ModelParallelMF(n_components=2, schedule="bsp", n_shards=2, fit_bias=False, max_iter=5),
    se.PrioritizedLasso(alpha=0.1, positive=True, fit_intercept=False),
    se.PrioritizedLasso(alpha=0.1, n_shards=3, n_jobs=2, warm_start=True),
    # rounding decides which columns are drawn, and so where within the tolerance a fit ends
    se.PrioritizedLasso(alpha=0.1, schedule="priority", tol=1e-12, random_state=0),
    se.PrioritizedLasso(alpha=0.1, missing_values=np.nan, standardize=True),
    se.PrioritizedLassoCV(alphas=3, cv=2, positive=True, n_jobs=2),
    se.PrioritizedLassoCV(alphas=3, cv=2, missing_values=np.nan, standardize=True),
    se.SparseGLM("logistic", alpha=0.01),
    se.SparseGLM("poisson", alpha=0.01),
    se.SparseGLM("huber", "mcp", alpha=0.01),
    se.SparseGLM("multinomial", alpha=0.01),
    se.SparseGLM("multinomial", "group", alpha=0.01),
    se.SparseGLMCV("logistic", alphas=[0.01], cv=2),
    se.SparseGLMCV("multinomial", "elasticnet", alphas=[0.01], cv=2),
    se.SparseLogisticRegression(C=0.1, class_weight="balanced", l1_ratio=0.5),
    se.SparseLogisticRegression(C=0.1, missing_values=-9.5, standardize=True),
    se.SparseLogisticRegression(C=0.1, schedule=se.schmp.RoundRobin(1)),
    se.SparseLogisticRegressionCV(Cs=3, cv=3, class_weight="balanced"),
]


@parametrize_with_checks(ONE_OF_EACH)
def test_one_setting_of_each(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", MANY, ids=str)
def test_many_settings(estimator):
    check_estimator(estimator)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_of_them_with_the_array_api():
    """SciPy reads the setting once, when it is imported."""
    options = ["-q", "-n", "0", "-m", "slow or not slow", "-k", "one_setting or many_settings"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", __file__, *options],
        env=os.environ | {"SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert "skipped" not in done.stdout.splitlines()[-1]
