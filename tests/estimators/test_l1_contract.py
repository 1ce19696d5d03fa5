"""The estimator contract: scikit-learn's checks, none excused."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from schmp_estimators.estimators.lasso import PrioritizedLasso
from schmp_estimators.estimators.lasso_cv import PrioritizedLassoCV
from schmp_estimators.estimators.logistic import SparseLogisticRegression
from schmp_estimators.estimators.logistic_cv import SparseLogisticRegressionCV


@parametrize_with_checks(
    [
        PrioritizedLasso(alpha=0.1),
        PrioritizedLasso(alpha=0.1, positive=True),
        PrioritizedLasso(alpha=0.1, schedule="round_robin", n_parallel=1),
        SparseLogisticRegression(),
        SparseLogisticRegression(C=0.1, class_weight="balanced"),
        PrioritizedLassoCV(alphas=5, cv=2),
        SparseLogisticRegressionCV(Cs=[0.1, 1.0], cv=2),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        PrioritizedLasso(alpha=0.1, schedule="random", n_parallel=1, random_state=0),
        # rounding decides which columns are drawn, and so where within the tolerance a fit ends
        PrioritizedLasso(alpha=0.1, schedule="priority", tol=1e-12, random_state=0),
        PrioritizedLasso(alpha=0.1, fit_intercept=False),
        PrioritizedLasso(alpha=0.1, warm_start=True, n_shards=2),
        SparseLogisticRegression(C=10.0, warm_start=True, n_shards=3, n_jobs=2),
        SparseLogisticRegression(C=0.1, schedule="round_robin", n_parallel=1),
    ]
)
def test_scikit_learn_checks_of_other_settings(estimator, check):
    check(estimator)
