"""What happens to checkpoints: disks that are full, and processes that die.

And what two fits must share.
"""

import errno
import os
from contextlib import contextmanager, suppress
from unittest.mock import patch

from scipy import sparse
from toys import bits

from schmp_estimators.core.io.checkpoint import Checkpoint


@contextmanager
def full_disk():
    """Let nothing be written to any disk."""
    with patch.object(os, "fsync", side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))):
        yield


class Dies(Exception):
    """What ends a process."""


@contextmanager
def dying():
    """Let each fit die once it has written a checkpoint.

    Gives the numbers of iterations after which that was.
    """
    write, deaths = Checkpoint.write, []

    def write_and_die(self, iterations, values):
        write(self, iterations, values)
        deaths.append(iterations)
        raise Dies

    with patch.multiple(Checkpoint, write=write_and_die, write_behind=write_and_die):
        yield deaths


def fitted_in_spite_of_deaths(fit):
    """Return what a function returns at last that fits and dies again and again.

    The iterations after which it died are returned, too.
    """
    with dying() as deaths:
        while len(deaths) < 1000:
            with suppress(Dies):
                return fit(), deaths
    raise AssertionError("it dies for ever")


def left_by(found):
    """What a fit, or the run of a program, leaves behind, to the last bit, but for the clock."""
    if isinstance(found, tuple):
        return bits(found)
    attributes = {
        name: value
        for name, value in vars(found).items()
        if name.endswith("_") and name != "history_"
    }
    for name, value in attributes.items():
        if sparse.issparse(value):
            attributes[name] = (value.indptr, value.indices, value.data)
    records = [
        {name: value for name, value in record.items() if name != "seconds"}
        for record in found.history_
    ]
    return bits(attributes), records
