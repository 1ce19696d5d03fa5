"""What happens to checkpoints: disks that are full."""

import errno
import os
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def full_disk():
    """Let nothing be written to any disk."""
    with patch.object(os, "fsync", side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))):
        yield
