"""Compilation of kernels and their parts: the only module that declares how.

Every kernel releases the GIL, so that several threads can run kernels at the same time.  Every
kernel is cached on disk, so that a second process starts in milliseconds.  No kernel is compiled
with ``parallel=True``: numba's default threading layer aborts the process if two Python threads
enter such kernels together.  No kernel whose result is kept may be compiled with reassociation or
contraction: the bits would depend on the instruction set.

A compiled kernel that is damaged on disk is named in the log and compiled again; a fit never fails
because of it.
"""

import gc
import logging
import os
import pickle
import zlib
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
from numba import njit
from numba.core import typed_passes, untyped_passes
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.codegen import CPUCodeLibrary, JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.runtime import rtsys
from numba.core.types import unliteral
from numba.core.types.functions import BaseFunction
from numba.extending import overload

from schmp_estimators.core.typing import Function, Named

logger = logging.getLogger(__name__)
#: The type of an index that is not negative: kernels need not look whether it counts from the end.
index = np.uint64

#: A file ends with this mark and the checksum of all bytes before the mark; size of the checksum in
#: bytes.
_MARK, _SIZE = b"crc:", 4


class _CheckedFiles(IndexDataCacheFile):
    """The cache files of a kernel, with checksums: numba would run damaged machine code."""

    def _dump(self, value: Any) -> bytes:
        data: bytes = super()._dump(value)  # type: ignore[no-untyped-call]
        return (
            data + _MARK + zlib.crc32(data).to_bytes(_SIZE, "little")
        )  # pickle does not read beyond its own end

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
        """Remove the index, so that all its kernels are compiled again."""
        with suppress(FileNotFoundError):
            os.unlink(self._index_path)


def _check(data: bytes) -> None:
    """Raise ValueError if the checksum is wrong.

    A file that numba alone has written has none, and is accepted.
    """
    body = data[: -len(_MARK) - _SIZE]
    end = data[-len(_MARK) - _SIZE :]
    if end.startswith(_MARK) and zlib.crc32(body) != int.from_bytes(end[len(_MARK) :], "little"):
        raise ValueError("its checksum is wrong")


class KernelCache(FunctionCache):
    """The cache of a kernel, in place of that of `numba.njit`.

    It raises RuntimeError if no folder is writable.
    """

    def __init__(self, function: Any) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._cache_file: Any = _CheckedFiles(
            self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp()
        )  # type: ignore[no-untyped-call]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return a compiled kernel from the cache, or None if there is none that can be used.

        numba's own method would first load what compilation needs, which takes about a quarter of a
        second.
        """
        try:
            rtsys.initialize(target_context)
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception as error:  # damaged bytes raise all kinds of errors of pickle and LLVM
            logger.warning(
                "the compiled kernel %s in %s is damaged (%s); it is compiled anew",
                self._py_func.__qualname__, self._cache_path, error,
            )  # fmt: skip
            with suppress(OSError):
                self._cache_file.forget()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write a compiled kernel to the cache, if its folder is writable."""
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except OSError as error:
            logger.warning(
                "the compiled kernel %s cannot be kept: %s", self._py_func.__qualname__, error
            )


class _KernelLibrary(JITCodeLibrary):
    """The machine code of a kernel and of all its parts."""

    def finalize(self) -> None:
        """Link each part once, before those that it calls.

        LLVM drops functions that nothing calls so far.
        """
        found: dict[Any, None] = {}
        _add_with_called(self._linking_libraries, found)
        self._linking_libraries = list(reversed(found))
        super().finalize()  # type: ignore[no-untyped-call]


def _add_with_called(libraries: list[Any], found: dict[Any, None]) -> None:
    """Add libraries to those found, each after those that it calls."""
    for library in libraries:
        if library not in found:
            _add_with_called(getattr(library, "called", []), found)
            found[library] = None


class _PartLibrary(_KernelLibrary):
    """The code of a part.

    It is optimised and becomes machine code only within the kernels that call it.
    """

    #: libraries of the functions that it calls
    called: list[Any]

    def finalize(self) -> None:
        """Leave the functions that it calls to the kernels, too."""
        self.called = self._linking_libraries
        self._linking_libraries = []
        CPUCodeLibrary.finalize(self)

    def _optimize_functions(self, ll_module: Any) -> None:
        """Do nothing: the code will be optimised where all parts are together."""
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: there is no machine code."""
        self._ensure_finalized()  # type: ignore[no-untyped-call]
        return 0

    @property
    def codegen(self) -> Any:
        """The object whose `set_env` gets the addresses of Python constants.

        Machine code refers to these.
        """
        return self

    def set_env(self, name: str, env: Any) -> None:
        """Do nothing: there is no machine code."""


class _Compiler(Compiler):
    """numba's compiler without passes for features that our functions do not use.

    Among these are closures and array expressions.
    """

    library: type[_KernelLibrary] = _PartLibrary

    def define_pipelines(self) -> Any:
        """Return numba's pipeline with fewer passes, and use another class of library."""
        codegen = self.state.targetctx.codegen()
        name = self.state.func_id.func_qualname
        self.state.library = self.library(codegen, name)
        self.state.library.enable_object_caching()
        (passes,) = super().define_pipelines()  # type: ignore[no-untyped-call]
        passes.passes = [one for one in passes.passes if one[0] not in _UNUSED]
        return [passes]


#: numba's passes that would take a fifth of the time, because each analyses the function again.
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


#: The signatures of operators and functions for the types of some arguments.
_signatures: dict[Any, Any] = {}
_signature_of: Any = BaseFunction.get_call_type


def _known_signature(function: Any, context: Any, args: Any, kws: Any) -> Any:
    """Return a signature that numba finds only once.

    For each call, it would try all meanings of ``+`` or ``len``.
    """
    key = function, tuple(args), tuple(kws.items())
    if key not in _signatures:
        _signatures[key] = _signature_of(function, context, args, kws)
    return _signatures[key]


class _KernelCompiler(_Compiler):
    """The compiler of kernels, without garbage collection, which would take a tenth of the time."""

    library = _KernelLibrary

    def compile_extra(self, func: Any) -> Any:
        """Compile a kernel and its parts.

        numba's lock makes sure that no other thread compiles meanwhile.
        """
        enabled = gc.isenabled()
        gc.disable()
        BaseFunction.get_call_type = _known_signature  # type: ignore[method-assign, assignment]
        try:
            return super().compile_extra(func)  # type: ignore[no-untyped-call]
        finally:
            BaseFunction.get_call_type = _signature_of  # type: ignore[method-assign]
            if enabled:
                gc.enable()


#: Options that change the machine code.
_ARITHMETIC: Named = {"error_model": "numpy", "fastmath": False}
#: Options of kernels: they need no wrapper for C, and they may make arrays.
_OPTIONS: Named = {
    **_ARITHMETIC, "nogil": True, "no_cfunc_wrapper": True, "_nrt": True,
    "pipeline_class": _KernelCompiler,
}  # fmt: skip
#: Options of parts, which do not count references.
_PART: Named = {
    **_ARITHMETIC, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False,
    "pipeline_class": _Compiler,
}  # fmt: skip
#: Options of parts that make arrays.
_MAKER: Named = {**_PART, "_nrt": True}


def kernel(function: Function) -> Any:
    """Compile `function` as a kernel.

    It needs no GIL, has IEEE arithmetic and NumPy's division rules, and is cached where possible.
    """
    compiled: Any = njit(cache=False, **_OPTIONS)(function)
    with suppress(RuntimeError):  # no directory for the cache is writable
        compiled._cache = KernelCache(function)
    return compiled


@cache
def kernel_of_this_process(kernel: Any) -> Any:
    """Return the same kernel, compiled for this process alone."""
    return njit(cache=False, **_OPTIONS)(getattr(kernel, "py_func", kernel))


def compiled_for(kind: Any, kernel: Any) -> Any:
    """Return the kernel to call with this penalty, loss or sampler.

    Kernels for classes outside this package are compiled in each process: a cache on disk would not
    notice changes to the class, and could not be read without it.
    """
    ours = type(kind).__module__.startswith("schmp_estimators.")
    return kernel if ours else kernel_of_this_process(kernel)


def part(function: Function) -> Any:
    """Compile `function` as a part: kernels call it, Python does not.

    It makes no arrays except views.

    A part does not count references.  Otherwise each array argument would cost two atomic
    instructions, and code for counting would take a third of the compilation time.  numba refuses a
    part that returns a new array.
    """
    return _by_kinds(njit(**_PART)(function))


def _by_kinds(compiled: Any) -> Any:
    """Compile a part only for the types of its arguments, not for each constant argument."""
    template_of = getattr(compiled, "get_call_template", None)  # missing if numba is switched off
    if template_of is not None:
        compiled.get_call_template = lambda args, kws: template_of(
            tuple(map(unliteral, args)), {name: unliteral(kind) for name, kind in kws.items()}
        )
    return compiled


def maker(function: Function) -> Any:
    """Compile `function` as a part of kernels that makes arrays."""
    return njit(**_MAKER)(function)


def inlined(function: Function) -> Any:
    """Compile `function` as a part of kernels that LLVM copies into each of its callers."""
    return _by_kinds(njit(forceinline=True, **_PART)(function))


def pasted(function: Function) -> Any:
    """Let numba copy `function` into each of its callers before it infers types.

    This is slow, because the types of each copy are inferred separately; use it where measurements
    show faster code.
    """
    return njit(inline="always", **_ARITHMETIC)(function)


@inlined
def copy_to(values, out):
    """Set out[k] = values[k] for all k of `out`, both of one axis.

    ``out[:] = values`` would also compile the text of an error about their shapes, which takes 2
    seconds.
    """
    for k in range(out.shape[0]):
        out[k] = values[k]


def ready(function: Function, how: Function = inlined) -> Any:
    """Return a function as a part of kernels: `how` compiles it, unless it is compiled already."""
    return function if hasattr(function, "py_func") else how(function)


def by_types(function: Function, *, copied: bool = False, strict: bool = True) -> Any:
    """Let calls of `function` in kernels use what the decorated function returns.

    It gets the types of the arguments.

    Only calls that occur are compiled, so a further type costs nothing where it is not used.  With
    `copied` the result is `inlined`; unless `strict`, arguments may have other names and
    annotations.
    """
    options: Any = {**_PART, "forceinline": True} if copied else _MAKER
    return overload(function, jit_options=options, strict=strict)
