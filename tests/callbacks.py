"""Callbacks of tests.

One notes what it is told, and what another does after each sweep is a function.
"""


class AfterSweeps:
    """Calls a function with the estimator and the context after each sweep.

    A fit ends where that returns true.
    """

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


class Recorder:
    """Notes what it is told.

    What it keeps of a task that has ended, and whether the fit ends then, say subclasses.
    """

    def __init__(self, stop_at=None):
        self.stop_at, self.events, self.kept = stop_at, [], []

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context):
        self.events.append(f"end {context.task_name}")
