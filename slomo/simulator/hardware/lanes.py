"""Two operations over all ways of a cache set: find a tag, and find the oldest allowed way.

numba does not vectorise such short loops, so they are written as LLVM vector operations, which LLVM lowers to the
processor's instructions (AVX-512, AVX2, SSE2, NEON). Ways are padded to 32 lanes; padding never matches a tag and is
never the oldest.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_INT = ir.IntType(32)
_LONG = ir.IntType(64)


def _load(lanes: int, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Load `lanes` numbers of the array in the first argument, from the index in the second."""
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    address = builder.bitcast(builder.gep(data, [arguments[1]]), ir.VectorType(_INT, lanes).as_pointer())
    loaded = builder.load(address)
    loaded.align = 4
    return loaded


def _splat(builder: Any, value: Any, lanes: int) -> Any:
    """Repeat a scalar over all lanes."""
    nothing = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    one = builder.insert_element(nothing, value, ir.Constant(_INT, 0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(_INT, lanes), [0] * lanes))


def _way_of(lanes: int) -> Any:
    @intrinsic
    def way_of(typing_context: Any, cache: Any, first: Any, tag: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ARG001
        """Return the way whose tag, from index `first` on, is `tag`; `lanes` if none is."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            held = _load(lanes, context, builder, signature, arguments)
            wanted = _splat(builder, builder.trunc(arguments[2], _INT), lanes)
            equal = builder.bitcast(builder.icmp_signed("==", held, wanted), ir.IntType(lanes))
            return builder.zext(builder.cttz(equal, ir.Constant(ir.IntType(1), 0)), _LONG)

        return types.int64(cache, types.int64, types.int64), generate

    return way_of


def _oldest(lanes: int) -> Any:
    @intrinsic
    def oldest(typing_context: Any, cache: Any, first: Any, mask: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ARG001
        """Return the smallest stamp, from index `first` on, among the ways in `mask`."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            held = _load(lanes, context, builder, signature, arguments)
            bits = builder.trunc(arguments[2], ir.IntType(lanes))
            allowed = builder.bitcast(bits, ir.VectorType(ir.IntType(1), lanes))
            never = ir.Constant(held.type, [2**31 - 1] * lanes)
            name = f"llvm.vector.reduce.smin.v{lanes}i32"
            kind = ir.FunctionType(_INT, [held.type])
            smallest = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
            return builder.zext(builder.call(smallest, [builder.select(allowed, held, never)]), _LONG)

        return types.int64(cache, types.int64, types.int64), generate

    return oldest


way_of_32, oldest_32 = _way_of(32), _oldest(32)
