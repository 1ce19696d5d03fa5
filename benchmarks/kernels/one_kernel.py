"""What all timings of kernels share: asv calls `setup`, then the clock runs round `time_call`."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import ClassVar


class OneKernel(ABC):
    """One kernel, on the same input every time: what it writes into is made anew before each call.

    Inputs are those of a real fit, in the types that programs hand over, so that what is timed is
    the machine code that fits run.
    """

    #: The clock: CPU seconds, so that what else the machine does weighs less.
    timer = staticmethod(time.process_time)
    #: One call for each `setup`, at least 20 and at most 200 of them, for up to 3 seconds.
    number = 1
    repeat = (20, 200, 3.0)
    _compiled: ClassVar[set[type]] = set()

    @staticmethod
    @abstractmethod
    def kernel(*arguments):
        """Do the work."""

    @abstractmethod
    def fresh(self):
        """Return the arguments of a call."""

    def setup(self):
        """Prepare a call; the first time also compile."""
        if type(self) not in self._compiled:
            self.kernel(*self.fresh())
            self._compiled.add(type(self))
        self.arguments = self.fresh()

    def time_call(self):
        """Run the kernel once."""
        return self.kernel(*self.arguments)
