"""`PrioritizedLasso` as a solver of benchopt's benchmark_lasso; see README.md."""

from benchopt import BaseSolver, safe_import_context
from benchopt.stopping_criterion import SufficientProgressCriterion

with safe_import_context() as import_ctx:
    import warnings

    import numpy as np
    from sklearn.exceptions import ConvergenceWarning

    from schmp_estimators import PrioritizedLasso


class Solver(BaseSolver):
    """Growing candidate sets, solved exactly; certified by the duality gap."""

    name = "schmp-resolve"
    sampling_strategy = "iteration"
    # the default is above the progress of late steps where the objective is a large number
    stopping_criterion = SufficientProgressCriterion(eps=1e-15, patience=3)

    install_cmd = "conda"
    requirements = ("pip::schmp-estimators",)
    references = (
        "S. Lee, J. K. Kim, X. Zheng, Q. Ho, G. A. Gibson, E. P. Xing, "
        '"On model parallelization and scheduling strategies for distributed machine learning", '
        "NIPS 2014",
    )

    def set_objective(self, X, y, lmbd, fit_intercept):
        """Keep the problem; benchopt's objective is n times that of the Lasso."""
        self.X, self.y = X, y
        self.fit_intercept = fit_intercept
        # a gap that rounding may not let it reach: the number of steps ends the fit
        self.lasso = PrioritizedLasso(lmbd / X.shape[0], fit_intercept=fit_intercept, tol=1e-14)

    def warm_up(self):
        """Compile."""
        self.run_once()

    def run(self, n_iter):
        """Make outer steps: each screens, lets columns join, and solves for all candidates."""
        self.beta = np.zeros(self.X.shape[1] + self.fit_intercept)
        if n_iter == 0:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.lasso.set_params(max_iter=n_iter).fit(self.X, self.y)
        self.beta[: self.X.shape[1]] = self.lasso.coef_
        if self.fit_intercept:
            self.beta[-1] = self.lasso.intercept_

    def get_next(self, n_iter):
        """Look at every step: there are few."""
        return n_iter + 1

    def get_result(self):
        """Return the coefficients, and the intercept after them if there is one."""
        return {"beta": self.beta}
