"""Schedulers and workers that are programs of their own, some of which lack a package or a part of one."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

from distributed import Client

#: What a process runs when Python begins, if its folder is on the path.  Dask itself loads what has an entry point;
#: after that the package is gone.
_HOOK = """
import sys
from importlib.abc import MetaPathFinder

class Lacking(MetaPathFinder):
    lacks = False

    def find_spec(self, name, path=None, target=None):
        if name == "distributed.scheduler":
            self.lacks = True
            for loaded in [one for one in sys.modules if (one + ".").startswith({package!r} + ".")]:
                del sys.modules[loaded]
        if self.lacks and (name + ".").startswith({package!r} + "."):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Lacking())
"""


@contextmanager
def program(*arguments, folder):
    """Run a module of Python, with `folder` first on its path, and what it prints in a file there."""
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH"), *sys.path])])
    with open(folder / f"{arguments[0]}.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *map(str, arguments)], env={**os.environ, "PYTHONPATH": path}, stdout=log, stderr=log
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(20)


@contextmanager
def cluster_lacking(package, folder, n_workers=2):
    """Client of workers whose scheduler cannot import a package."""
    with_package, without = folder / "with", folder / "without"
    with_package.mkdir()
    without.mkdir()
    (without / "sitecustomize.py").write_text(_HOOK.format(package=package))
    told = folder / "scheduler.json"
    with ExitStack() as stack:
        options = ("--port", "0", "--dashboard-address", ":0", "--scheduler-file", told, "--host", "127.0.0.1")
        stack.enter_context(program("distributed.cli.dask_scheduler", *options, folder=without))
        deadline = time.monotonic() + 60
        while not told.exists():
            assert time.monotonic() < deadline, (without / "distributed.cli.dask_scheduler.log").read_text()
            time.sleep(0.1)
        options = ("--nworkers", n_workers, "--nthreads", "1", "--scheduler-file", told, "--no-dashboard")
        stack.enter_context(program("distributed.cli.dask_worker", *options, folder=with_package))
        client = stack.enter_context(Client(scheduler_file=str(told), set_as_default=False))
        client.wait_for_workers(n_workers, timeout=60)
        yield client
