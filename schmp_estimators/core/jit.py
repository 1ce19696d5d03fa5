"""The one place that declares how kernels are compiled.

Every kernel releases the GIL, so that threads of this process run several at once, and is cached on disk, so that a
second process starts in milliseconds.  No kernel is compiled with ``parallel=True``: numba's default threading layer
aborts the process when two Python threads enter such kernels together.  No kernel whose result is kept may be compiled
with reassociation or contraction: the bits would depend on the instruction set.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from numba import njit
from numba.extending import overload

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": False}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` as a kernel: no GIL, IEEE arithmetic, NumPy's division rules, cached where possible."""
    try:
        return njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # no directory for the cache is writable
        return njit(cache=False, **_OPTIONS)(function)


@cache
def kernel_of_this_process(kernel: Any) -> Any:
    """Return the same kernel, compiled for this process alone."""
    return njit(cache=False, **_OPTIONS)(kernel.py_func)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile `function` as a part of kernels, copied into each of its callers."""
    return njit(inline="always", error_model="numpy", fastmath=False)(function)


@inlined
def copy_to(values, out):
    """Set out[k] = values[k] for all k of `out`, both of one axis.

    ``out[:] = values`` would compile the text of an error about their shapes, too, which takes 2 seconds.
    """
    for k in range(out.shape[0]):
        out[k] = values[k]


def by_types(function: Callable[..., Any], *, copied: bool = False) -> Any:
    """Let kernels that call `function` get what the decorated function returns for the types of the arguments.

    Only what is called is compiled, so a further type costs nobody anything who does not use it.  `copied` copies it
    into its callers; it must not call what is `inlined`, then, as numba 0.68 mistakes its variables.
    """
    options: Any = {"error_model": "numpy", "fastmath": False}
    return overload(function, inline="always" if copied else "never", jit_options=options)
