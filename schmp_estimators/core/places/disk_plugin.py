"""What workers of a cluster answer while a run keeps files on their disks."""

from __future__ import annotations

from distributed import Worker, WorkerPlugin

from schmp_estimators.core.places.disks import Disk, answer, clear


class Files(WorkerPlugin):
    """Lets a worker give and take files of a run, and in the end removes its folder."""

    def __init__(self, disk: Disk) -> None:
        self._disk, self.name = disk, f"schmp-disk-{disk.token}"

    def setup(self, worker: Worker) -> None:
        """Let the worker answer."""
        answer(worker)

    def teardown(self, worker: Worker) -> None:
        """Remove the folder of the run."""
        clear(self._disk, worker)
