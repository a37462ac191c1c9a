"""LLVM instructions that numba does not generate: compare all ways of a cache set at once, and compiler hints.

numba does not vectorise such short loops, so finding a tag and the oldest allowed way are written as LLVM vector
operations, which LLVM lowers to the processor's instructions (AVX-512, AVX2, SSE2, NEON). Ways are padded to 16 or 32
lanes; padding never matches a tag and is never the oldest.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_SHORT, _INT = ir.IntType(16), ir.IntType(32)
_LONG = ir.IntType(64)


def _load(lanes: int, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Load `lanes` numbers of the array in the first argument, from the index in the second."""
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    number = data.type.pointee
    address = builder.bitcast(builder.gep(data, [arguments[1]]), ir.VectorType(number, lanes).as_pointer())
    loaded = builder.load(address)
    loaded.align = number.width // 8
    return loaded


def _splat(builder: Any, value: Any, lanes: int) -> Any:
    """Repeat a number in all lanes of a vector."""
    nothing = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    one = builder.insert_element(nothing, value, ir.Constant(_INT, 0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(_INT, lanes), [0] * lanes))


def _ways_of(lanes: int) -> Any:
    @intrinsic
    def ways_of(typing_context: Any, cache: Any, first: Any, tag: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ARG001
        """Return a mask of the ways whose tag, from index `first` on, is `tag`."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            held = _load(lanes, context, builder, signature, arguments)
            way = _splat(builder, builder.trunc(arguments[2], _INT), lanes)
            equal = builder.bitcast(builder.icmp_signed("==", held, way), ir.IntType(lanes))
            return builder.zext(equal, _LONG)

        return types.int64(cache, types.int64, types.int64), generate

    return ways_of


def _oldest(lanes: int) -> Any:
    @intrinsic
    def oldest(typing_context: Any, stamps: Any, first: Any, mask: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ARG001
        """Return the smallest stamp, from index `first` on, among the ways in `mask`."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            held = _load(lanes, context, builder, signature, arguments)
            bits = builder.trunc(arguments[2], ir.IntType(lanes))
            allowed = builder.bitcast(bits, ir.VectorType(ir.IntType(1), lanes))
            never = ir.Constant(held.type, [2**16 - 1] * lanes)
            name = f"llvm.vector.reduce.umin.v{lanes}i16"
            kind = ir.FunctionType(_SHORT, [held.type])
            smallest = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
            return builder.zext(builder.call(smallest, [builder.select(allowed, held, never)]), _LONG)

        return types.int64(stamps, types.int64, types.int64), generate

    return oldest


def _lowest(typing_context: Any, mask: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ARG001
    """Return the number of the lowest bit that is set in a mask other than 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


def _natural(typing_context: Any, number: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ARG001
    """Tell the compiler that a number is never negative, which saves a check of indices."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        builder.assume(builder.icmp_signed(">=", arguments[0], ir.Constant(_LONG, 0)))
        return arguments[0]

    return types.int64(types.int64), generate


def _fetch_ahead(typing_context: Any, array: Any, index: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ARG001
    """Ask the processor to load an array's element into its L1 cache; results do not change."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [address.type, _INT, _INT, _INT])
        name = "llvm.prefetch.p0i8"
        prefetch = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
        builder.call(prefetch, [address, *(ir.Constant(_INT, each) for each in (0, 3, 1))])
        return context.get_dummy_value()

    return types.none(array, types.int64), generate


ways_of_16, oldest_16, ways_of_32, oldest_32 = _ways_of(16), _oldest(16), _ways_of(32), _oldest(32)
lowest: Any = intrinsic(_lowest)
natural: Any = intrinsic(_natural)
fetch_ahead: Any = intrinsic(_fetch_ahead)
