"""A callback of tests: what it does after each sweep is a function."""


class AfterSweeps:
    """Calls a function with the estimator and the context after each sweep; a fit ends where that returns true."""

    def __init__(self, act):
        self.act = act

    def setup(self, estimator, context): ...
    def teardown(self, estimator, context): ...
    def on_fit_task_begin(self, estimator, context): ...

    def on_fit_task_end(self, estimator, context):
        return context.task_name == "sweep" and self.act(estimator, context)


def dies(at, error=KeyboardInterrupt):
    """Return a callback that raises an error after a sweep, as a crash would."""

    def act(estimator, context):
        if estimator.n_iter_ == at:
            raise error

    return AfterSweeps(act)
