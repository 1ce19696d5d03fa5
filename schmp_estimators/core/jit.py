"""The one place that declares how kernels, and their parts, are compiled.

Every kernel releases the GIL, so that threads of this process run several at once, and is cached on disk, so that a
second process starts in milliseconds.  No kernel is compiled with ``parallel=True``: numba's default threading layer
aborts the process when two Python threads enter such kernels together.  No kernel whose result is kept may be compiled
with reassociation or contraction: the bits would depend on the instruction set.

A compiled kernel that is damaged on disk is named in the log, and compiled anew; a fit never fails of it.
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from numba import njit
from numba.core import typed_passes, untyped_passes
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.codegen import CPUCodeLibrary, JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.runtime import rtsys
from numba.core.types import unliteral
from numba.core.types.functions import BaseFunction
from numba.extending import overload

logger = logging.getLogger(__name__)

#: What the last bytes of a file begin with, which the checksum of all before them follows.
_MARK, _SIZE = b"crc:", 4


class _CheckedFiles(IndexDataCacheFile):
    """The files of a kernel, with checksums: numba would run machine code that is damaged."""

    def _dump(self, value: Any) -> bytes:
        data: bytes = super()._dump(value)  # type: ignore[no-untyped-call]
        return data + _MARK + zlib.crc32(data).to_bytes(_SIZE, "little")  # which pickle, having ended, does not read

    def _load_index(self) -> Any:
        with suppress(FileNotFoundError), open(self._index_path, "rb") as file:
            pickle.load(file)  # the version of numba
            _check(file.read())
        return super()._load_index()  # type: ignore[no-untyped-call]

    def _load_data(self, name: str) -> Any:
        with open(self._data_path(name), "rb") as file:  # type: ignore[no-untyped-call]
            _check(file.read())
        return super()._load_data(name)  # type: ignore[no-untyped-call]

    def forget(self) -> None:
        """Remove the index, so that all that it knows is compiled anew."""
        with suppress(FileNotFoundError):
            os.unlink(self._index_path)


def _check(data: bytes) -> None:
    """Raise ValueError if the checksum is another one; what numba alone has written has none, and is as it is."""
    body, end = data[: -len(_MARK) - _SIZE], data[-len(_MARK) - _SIZE :]
    if end.startswith(_MARK) and zlib.crc32(body) != int.from_bytes(end[len(_MARK) :], "little"):
        raise ValueError("its checksum is another one")


class KernelCache(FunctionCache):
    """What `numba.njit` would use as the cache of a function; raises RuntimeError if no folder is writable."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._cache_file: Any = _CheckedFiles(
            self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp()
        )  # type: ignore[no-untyped-call]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return a compiled kernel, or None if there is none that can be used.

        numba would first load all that a compilation needs, which takes a third of a second.
        """
        try:
            rtsys.initialize(target_context)
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception as error:  # whatever unpickling, or LLVM, says to bytes that are not what they were
            logger.warning(
                "the compiled kernel %s in %s is damaged (%s); it is compiled anew",
                self._py_func.__qualname__, self._cache_path, error,
            )  # fmt: skip
            with suppress(OSError):
                self._cache_file.forget()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled kernel, if its folder takes it."""
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except OSError as error:
            logger.warning("the compiled kernel %s cannot be kept: %s", self._py_func.__qualname__, error)


class _KernelLibrary(JITCodeLibrary):
    """The code of a kernel, with that of all its parts."""

    def finalize(self) -> None:
        """Link in all parts, each once, before what it calls: LLVM leaves out what nobody calls so far."""
        found: dict[Any, None] = {}
        _add_with_called(self._linking_libraries, found)
        self._linking_libraries = list(reversed(found))
        super().finalize()  # type: ignore[no-untyped-call]


def _add_with_called(libraries: list[Any], found: dict[Any, None]) -> None:
    """Add libraries, each after those that it calls."""
    for library in libraries:
        if library not in found:
            _add_with_called(getattr(library, "called", []), found)
            found[library] = None


class _PartLibrary(_KernelLibrary):
    """The code of a part: optimised and made machine code in the kernels that call it, and not by itself before."""

    #: libraries of what it calls
    called: list[Any]

    def finalize(self) -> None:
        """Leave what it calls to the kernels, too."""
        self.called, self._linking_libraries = self._linking_libraries, []
        CPUCodeLibrary.finalize(self)

    def _optimize_functions(self, ll_module: Any) -> None:
        """Leave that, too: what is done here would be done again where all parts are together."""
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return that there is no machine code."""
        self._ensure_finalized()  # type: ignore[no-untyped-call]
        return 0

    @property
    def codegen(self) -> Any:
        """Return who is told where the constants of Python are that machine code refers to."""
        return self

    def set_env(self, name: str, env: Any) -> None:
        """Keep nothing: there is no machine code."""


class _Compiler(Compiler):
    """numba's compiler without passes for what our functions do not have: closures, array expressions, and others."""

    library: type[_KernelLibrary] = _PartLibrary

    def define_pipelines(self) -> Any:
        """Return numba's pipeline with fewer passes, for another library."""
        codegen, name = self.state.targetctx.codegen(), self.state.func_id.func_qualname
        self.state.library = self.library(codegen, name)
        self.state.library.enable_object_caching()
        (passes,) = super().define_pipelines()  # type: ignore[no-untyped-call]
        passes.passes = [one for one in passes.passes if one[0] not in _UNUSED]
        return [passes]


#: Passes of numba's that would take a fifth of the time; each analyses the function anew.
_UNUSED = (
    untyped_passes.WithLifting,
    untyped_passes.InlineClosureLikes,
    untyped_passes.RewriteDynamicRaises,
    untyped_passes.MakeFunctionToJitFunction,
    untyped_passes.FindLiterallyCalls,
    untyped_passes.LiteralUnroll,
    untyped_passes.LiteralPropagationSubPipelinePass,
    typed_passes.NopythonRewrites,
    typed_passes.NoPythonSupportedFeatureValidation,
    typed_passes.DumpParforDiagnostics,
)


#: What an operator or a function returns for the types of some arguments.
_signatures: dict[Any, Any] = {}
_signature_of: Any = BaseFunction.get_call_type


def _known_signature(function: Any, context: Any, args: Any, kws: Any) -> Any:
    """Return what numba finds out, but only once: it asks all that ``+`` or ``len`` could mean, for each call again."""
    key = function, tuple(args), tuple(kws.items())
    if key not in _signatures:
        _signatures[key] = _signature_of(function, context, args, kws)
    return _signatures[key]


class _KernelCompiler(_Compiler):
    """The compiler of kernels, without garbage collection, which would take a tenth of the time."""

    library = _KernelLibrary

    def compile_extra(self, func: Any) -> Any:
        """Compile a kernel and its parts; nobody else compiles meanwhile, as numba has a lock."""
        enabled = gc.isenabled()
        gc.disable()
        BaseFunction.get_call_type = _known_signature  # type: ignore[method-assign, assignment]
        try:
            return super().compile_extra(func)  # type: ignore[no-untyped-call]
        finally:
            BaseFunction.get_call_type = _signature_of  # type: ignore[method-assign]
            if enabled:
                gc.enable()


#: What the machine code of a kernel depends on.
_ARITHMETIC: dict[str, Any] = {"error_model": "numpy", "fastmath": False}
#: Of kernels: nobody asks for their addresses in C.  They may make arrays, whoever calls them.
_OPTIONS: dict[str, Any] = {
    **_ARITHMETIC, "nogil": True, "no_cfunc_wrapper": True, "_nrt": True, "pipeline_class": _KernelCompiler,
}  # fmt: skip
#: Of their parts, which count no references.
_PART: dict[str, Any] = {
    **_ARITHMETIC, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False, "pipeline_class": _Compiler,
}  # fmt: skip
#: Of parts that make arrays.
_MAKER: dict[str, Any] = {**_PART, "_nrt": True}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` as a kernel: no GIL, IEEE arithmetic, NumPy's division rules, cached where possible."""
    compiled = njit(cache=False, **_OPTIONS)(function)
    with suppress(RuntimeError):  # no directory for the cache is writable
        compiled._cache = KernelCache(function)
    return compiled


@cache
def kernel_of_this_process(kernel: Any) -> Any:
    """Return the same kernel, compiled for this process alone."""
    return njit(cache=False, **_OPTIONS)(kernel.py_func)


def part(function: Callable[..., Any]) -> Any:
    """Compile `function` as a part of kernels, which call it; Python does not, and it makes no arrays but views.

    It counts no references: an array that is handed over would cost two atomic instructions otherwise, and the code to
    count it a third of the time of compilation.  numba refuses a part that returns an array that it was not given.
    """
    return _by_kinds(njit(**_PART)(function))


def _by_kinds(compiled: Any) -> Any:
    """Have a part compiled for the types of its arguments alone, not for each constant that is handed over."""
    template_of = getattr(compiled, "get_call_template", None)  # which a function has not where numba is switched off
    if template_of is not None:
        compiled.get_call_template = lambda args, kws: template_of(
            tuple(map(unliteral, args)), {name: unliteral(kind) for name, kind in kws.items()}
        )
    return compiled


def maker(function: Callable[..., Any]) -> Any:
    """Compile `function` as a part of kernels, which call it, that makes arrays."""
    return njit(**_MAKER)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile `function` as a part of kernels that LLVM copies into each of its callers."""
    return _by_kinds(njit(forceinline=True, **_PART)(function))


def pasted(function: Callable[..., Any]) -> Any:
    """Have `function` copied into each of its callers by numba, before it infers types.

    That is slow, as the types of each copy are inferred by themselves; for where it was measured to make faster code.
    """
    return njit(inline="always", **_ARITHMETIC)(function)


@inlined
def copy_to(values, out):
    """Set out[k] = values[k] for all k of `out`, both of one axis.

    ``out[:] = values`` would compile the text of an error about their shapes, too, which takes 2 seconds.
    """
    for k in range(out.shape[0]):
        out[k] = values[k]


def by_types(function: Callable[..., Any], *, copied: bool = False, strict: bool = True) -> Any:
    """Let kernels that call `function` get what the decorated function returns for the types of the arguments.

    Only what is called is compiled, so a further type costs nobody anything who does not use it.  `copied` makes a part
    of it that is `inlined`; unless `strict`, arguments may have other names and annotations.
    """
    options: Any = {**_PART, "forceinline": True} if copied else _MAKER
    return overload(function, jit_options=options, strict=strict)
