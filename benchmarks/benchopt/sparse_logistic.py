"""`SparseLogisticRegression` as a solver of benchopt's benchmark_logreg_l1; see README.md."""

from benchopt import BaseSolver, safe_import_context
from benchopt.stopping_criterion import SufficientProgressCriterion

with safe_import_context() as import_ctx:
    import warnings

    import numpy as np
    from sklearn.exceptions import ConvergenceWarning

    from schmp_estimators import SparseLogisticRegression


class Solver(BaseSolver):
    """Newton steps over growing working sets; certified by the duality gap."""

    name = "schmp-resolve"
    sampling_strategy = "iteration"
    # the default is above the progress of late steps where the objective is a large number
    stopping_criterion = SufficientProgressCriterion(eps=1e-15, patience=3)

    install_cmd = "conda"
    requirements = ("pip::schmp-estimators",)

    def set_objective(self, X, y, lmbd):
        """Keep the problem.

        Benchopt's objective is lmbd times that of the estimator, with C = 1/lmbd.
        """
        self.X, self.y = X, y
        # a gap that rounding may not let it reach: the number of steps ends the fit
        self.logistic = SparseLogisticRegression(C=1.0 / lmbd, fit_intercept=False, tol=1e-14)

    def warm_up(self):
        """Compile."""
        self.run_once()

    def run(self, n_iter):
        """Make outer steps: each is a Newton step on the columns that matter."""
        self.beta = np.zeros(self.X.shape[1])
        if n_iter == 0:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.logistic.set_params(max_iter=n_iter).fit(self.X, self.y)
        self.beta[:] = self.logistic.coef_[0]

    def get_next(self, n_iter):
        """Look at every step: there are few."""
        return n_iter + 1

    def get_result(self):
        """Return the coefficients."""
        return {"beta": self.beta}
