"""Compile the simulator's inner functions ("kernels") with numba once, and keep the machine code on disk.

numba's ``cache=True`` stores machine code beside the source (or in the user's cache directory); the first call on a
machine compiles for about a minute (`slomo.simulator.first_compile` announces it).
"""

import functools
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from slomo.extras import missing
from slomo.files.machine_code import in_turn

try:
    import numba
    from numba import _dynfunc, types  # type: ignore[attr-defined]
    from numba.core.compiler import CompilerBase, DefaultPassBuilder
    from numba.core.compiler_machinery import register_pass
    from numba.core.typed_passes import NativeLowering
except ModuleNotFoundError:
    raise missing("numba") from None

Function = TypeVar("Function", bound=Callable[..., Any])

#: no kernel allocates, so reference counting (`_nrt`) would only cost time: with it every call takes 30 times as long
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
#: Names of the room's files without kernels; all others are part of the machine code.
_NO_KERNELS = {"__init__", "convergence", "engine", "first_compile", "layout", "program", "result", "settings"}


@register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[no-untyped-call]
class _Lowering(NativeLowering):
    """A numba pass that makes LLVM code, but no machine code, of functions that only kernels call.

    The kernels that call it make the machine code. Otherwise numba would compile each function once for every level of
    calls above it.
    """

    _name = "lowering_without_machine_code"

    def run_pass(self, state: Any) -> bool:
        """Make the LLVM code of a function that only kernels call."""
        state.library = library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
        library._optimize_final_module = lambda: None
        library._finalize_final_module = lambda: setattr(library, "_finalized", True)
        state.flags.no_compile = True
        super().run_pass(state)  # type: ignore[no-untyped-call]
        lowered = state["cr"]
        name = lowered.fndesc.qualname.split(".")[-1]
        entry = _dynfunc.make_function(lowered.fndesc.lookup_module(), name, "", 0, lowered.env, (library,))
        state.targetctx.insert_user_function(entry, lowered.fndesc, [library])
        state["cr"] = lowered._replace(cfunc=entry)
        return True


class _Callees(CompilerBase):
    """Compiles functions that only kernels call."""

    def define_pipelines(self) -> list[Any]:
        """Return numba's passes, with `_Lowering` as the last one."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)  # type: ignore[no-untyped-call]
        passes.passes = [(_Lowering if step is NativeLowering else step, why) for step, why in passes.passes]
        passes.finalize()
        return [passes]


#: Options for functions that only kernels call: no entry point from Python, since unpacking every array of the state
#: there took 40 % of the compilation time.
_CALLEE: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": _Callees}


def compiled(function: Function) -> Function:
    """Compile `function`; its code is inlined wherever another kernel calls it. Python must not call it.

    Floating-point operations are neither reordered nor fused, so results are equal to the byte on every machine.
    """
    return cast(Function, _of_one_signature(numba.njit(**_CALLEE, forceinline=True)(function)))


def kernel(function: Function) -> Function:
    """Compile `function` as an entry point that Python calls, and keep its machine code on disk."""
    try:
        dispatcher: Any = numba.njit(**_OPTIONS, cache=True)(function)
    except RuntimeError:  # neither slomo's folder nor the user's cache can be written; each process compiles for itself
        return cast(Function, numba.njit(**_OPTIONS)(function))
    return cast(Function, in_turn(dispatcher, source_digest()))  # a kernel contains the code of all files


def inner(function: Function) -> Function:
    """Compile `function` without inlining, for rare calls from kernels. Python must not call it."""
    return cast(Function, _of_one_signature(numba.njit(**_CALLEE)(function)))


def _of_one_signature(dispatcher: Any) -> Any:
    """Let a compiled function take all integers as 64 bits, so that numba compiles it only once."""
    template_of = dispatcher.get_call_template

    def call_template(arguments: Sequence[Any], keywords: Any) -> Any:
        return template_of([_widened(each) for each in arguments], keywords)

    dispatcher.get_call_template = call_template
    return dispatcher


def _widened(kind: Any) -> Any:
    kind = getattr(kind, "literal_type", kind)  # of a constant
    return types.int64 if isinstance(kind, types.Integer) and kind.bitwidth < 64 else kind  # type: ignore[attr-defined]


@functools.cache
def source_digest() -> str:
    """Return a digest of all source code of the kernels."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for name in sorted(str(path.relative_to(folder)) for path in folder.rglob("*.py") if path.stem not in _NO_KERNELS):
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()
