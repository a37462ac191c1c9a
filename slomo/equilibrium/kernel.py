"""The iteration of `slomo.equilibrium.rounds` as compiled code, one server after the other.

It makes the same additions in the same order as the numpy code, without fast-math, so results are equal to the last
bit. An NF's pressures, and the functions of its response, are short vectors (:class:`Vector`) that stay in registers:
numba does not vectorise such short loops.
"""

import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

from slomo.equilibrium.tables import width_of
from slomo.models.contentiousness import basis_size

_NUMBER, _INDEX = ir.DoubleType(), ir.IntType(32)


class Vector(types.Type):
    """A short vector of 64-bit numbers in compiled code; operators act on each, and a plain number counts for all."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(name=f"Vector({count})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, ir.VectorType(_NUMBER, kind.count))  # type: ignore[no-untyped-call]


def _instruction(signature_of: Callable[..., Any], generate: Callable[..., Any], *, has_literal: bool = False) -> Any:
    """Return an instruction for compiled code.

    `signature_of` gets the types of its arguments, `generate` LLVM's builder, these types, and the arguments; an array
    as the address of its first number. `has_literal`: one argument is a constant.
    """

    def define(_: Any, *kinds: Any) -> tuple[Any, Callable[..., Any]]:
        def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            given = zip(signature.args, arguments, strict=True)
            read = [
                context.make_array(k)(context, builder, v).data if isinstance(k, types.Array) else v for k, v in given
            ]
            result = generate(builder, kinds, *read)
            return context.get_dummy_value() if signature.return_type == types.void else result

        return signature_of(*kinds), lower

    parameters = inspect.signature(signature_of).parameters.values()  # numba takes no variable number of arguments
    context = inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    define.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]
    return intrinsic(prefer_literal=has_literal)(define)


def _at(builder: Any, numbers: Any, at: Any, count: int) -> Any:
    return builder.bitcast(builder.gep(numbers, [at]), ir.VectorType(_NUMBER, count).as_pointer())


def _chosen(builder: Any, vector: Any, numbers: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(_INDEX, len(numbers)), numbers)
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)


def _as_vector(builder: Any, kind: Any, value: Any, count: int) -> Any:
    if isinstance(kind, Vector):
        return value
    nothing = ir.Constant(ir.VectorType(_NUMBER, count), ir.Undefined)
    return _chosen(builder, builder.insert_element(nothing, value, ir.Constant(_INDEX, 0)), [0] * count)


def _each(builder: Any, vector: Any) -> list[Any]:
    return [builder.extract_element(vector, ir.Constant(_INDEX, at)) for at in range(vector.type.count)]


def _as_numbers(*kinds: Any) -> list[Any]:
    return [kind if isinstance(kind, Vector) else types.float64 for kind in kinds]


def _of_two(compute: Callable[[Any, Any, Any], Any]) -> Any:
    """Return an instruction for two vectors, or a vector and a plain number."""

    def generate(builder: Any, kinds: Any, *values: Any) -> Any:
        count = next(kind.count for kind in kinds if isinstance(kind, Vector))
        return compute(builder, *(_as_vector(builder, k, v, count) for k, v in zip(kinds, values, strict=True)))

    def signature_of(left: Any, right: Any) -> Any:
        vector = left if isinstance(left, Vector) else right
        return vector(*_as_numbers(left, right))

    return _instruction(signature_of, generate)


def _sum(builder: Any, start: Any, vector: Any) -> Any:
    for one in _each(builder, vector):
        start = builder.fadd(start, one)
    return start


def _largest(builder: Any, vector: Any) -> Any:
    most, *others = _each(builder, vector)
    for one in others:
        most = builder.select(builder.fcmp_ordered(">", one, most), one, most)
    return most


def _absolute(builder: Any, vector: Any) -> Any:
    kind = ir.FunctionType(vector.type, [vector.type])
    name = f"llvm.fabs.v{vector.type.count}f64"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [vector])  # type: ignore[no-untyped-call]


def _where(builder: Any, kinds: Any, mask: Any, *values: Any) -> Any:
    ends = [_as_vector(builder, k, v, mask.type.count) for k, v in zip(kinds[1:], values, strict=True)]
    zero = ir.Constant(mask.type, [0.0] * mask.type.count)
    return builder.select(builder.fcmp_ordered(">", mask, zero), *ends)


def _weighed(builder: Any, weights: Any, at: Any, parts: Any) -> Any:
    part, columns = _each(builder, parts), width_of(parts.type.count)
    products = [builder.fmul(part[k], part[m]) for k in range(len(part)) for m in range(k + 1)]
    total = builder.load(_at(builder, weights, at, columns), align=8)
    for term in [*part, *products]:
        at = builder.add(at, ir.Constant(at.type, columns))
        weight = builder.load(_at(builder, weights, at, columns), align=8)
        total = builder.fadd(total, builder.fmul(_as_vector(builder, None, term, columns), weight))
    return total


def _of(count: Any) -> Vector:
    return count if isinstance(count, Vector) else Vector(count.literal_value)


#: Adjacent numbers of an array, from an index on: as many as a constant says, or as another vector has.
load = _instruction(
    lambda array, _, count: _of(count)(array, types.uintp, count),
    lambda b, kinds, array, at, _: b.load(_at(b, array, at, _of(kinds[2]).count), align=8),
    has_literal=True,
)
#: Write a vector into an array, from an index on.
store = _instruction(
    lambda array, _, vector: types.void(array, types.uintp, vector),
    lambda b, kinds, array, at, vector: b.store(vector, _at(b, array, at, kinds[2].count), align=8),
)
#: The smaller and the larger of each two numbers.
smaller = _of_two(lambda b, one, other: b.select(b.fcmp_ordered("<", other, one), other, one))
larger = _of_two(lambda b, one, other: b.select(b.fcmp_ordered(">", other, one), other, one))
#: A vector where a mask is above 0, else another; both may be plain numbers.
where = _instruction(lambda mask, one, other: mask(mask, *_as_numbers(one, other)), _where)
absolute = _instruction(lambda vector: vector(vector), lambda b, _, vector: _absolute(b, vector))
#: One number of a vector, and the first ones (as many as a constant says).
element = _instruction(
    lambda v, _: types.float64(v, types.intp), lambda b, _, vector, at: b.extract_element(vector, at)
)
first = _instruction(
    lambda vector, count: Vector(count.literal_value)(vector, count),
    lambda b, kinds, vector, _: _chosen(b, vector, list(range(kinds[1].literal_value))),
    has_literal=True,
)
largest = _instruction(lambda vector: types.float64(vector), lambda b, _, vector: _largest(b, vector))
#: A start plus all numbers of a vector, added in order.
sum_from = _instruction(lambda _, v: types.float64(types.float64, v), lambda b, _, start, v: _sum(b, start, v))
#: Sums of 1, the parts and their products (`slomo.models.contentiousness.pressure_basis`), each with its column of
#: weights, which begin at an index, term by term (`slomo.equilibrium.tables.Tables`).
weighed = _instruction(
    lambda weights, _, parts: Vector(width_of(parts.count))(weights, types.uintp, parts),
    lambda b, _, weights, at, parts: _weighed(b, weights, at, parts),
)


def _overload(symbol: Callable[[Any, Any], Any], name: str) -> None:
    operation = _of_two(lambda builder, one, other: getattr(builder, name)(one, other))

    @overload(symbol)
    def _operator(left, right):  # type: ignore[no-untyped-def]
        is_mine = isinstance(left, Vector) or isinstance(right, Vector)
        return (lambda left, right: operation(left, right)) if is_mine else None


_overload(operator.add, "fadd")
_overload(operator.sub, "fsub")
_overload(operator.mul, "fmul")
_overload(operator.truediv, "fdiv")


@njit(nogil=True, error_model="numpy")
def answers_under(numbers, row, pressure, size, width):  # type: ignore[no-untyped-def]
    """Return all functions of an NF's response at a pressure (`slomo.equilibrium.rounds.under`)."""
    clamped = smaller(larger(pressure, 0.0), load(numbers, row + np.uintp(2 * size), pressure))
    parts = clamped / (clamped + load(numbers, row + np.uintp(size), pressure))
    answers, low = weighed(numbers, row + np.uintp(3 * size + 2 * width), parts), row + np.uintp(3 * size)
    return smaller(larger(answers, load(numbers, low, answers)), load(numbers, low + np.uintp(width), answers))


def rounds_of(pressures: int) -> Callable[..., None]:  # noqa: C901
    """Return the function to be compiled for servers with this number of pressures."""
    size, width, aged_terms = pressures, width_of(pressures), basis_size(pressures) - 1
    fastest_at, holding_at = 4 * size + width, 4 * size + 2 * width + 1

    def settle_servers(  # type: ignore[no-untyped-def] # noqa: C901
        rows,
        members,
        offered,
        reduced,
        pace,
        socket,
        tolerance,
        full_kib,
        tries,
        ages,
        vectors,
        status,
        waiting,
        age,
        speeds,
    ):
        """Find the equilibrium of every server; the arguments are those in `settling`.

        Empty places come last. `reduced`: whether some NF is offered less than it could serve. `vectors`, shape (2,
        servers, places, pressures), `waiting` and `age` hold the initial values and afterwards the results: counters
        and the pressure on each NF. `speeds` is set to the smooth speed under that pressure. `status`, shape (servers,
        5), is set as in `IterationState`. For an NF at part load, two answers are computed: at full load, and at part
        load; without a part-load profile, the second one is at full load beside faster neighbours.
        """
        tiny, least_load, held, busy = socket[0], socket[1], int(socket[2]), socket[3]
        channel, compared = int(socket[4]), socket[5]
        caps, rates = load(socket, np.uintp(6), size), load(socket, np.uintp(6 + size), size)
        channel_cap = socket[6 + channel] if channel >= 0 else 1.0
        least_age, most_age, older = ages[0], ages[1], ages[2]
        packets = load(ages, np.uintp(3), aged_terms)
        servers, places = members.shape
        numbers, long, part_at = rows.reshape(-1), np.uintp(rows.shape[1]), np.uintp(rows.shape[1] // 2)
        counters, pressed = vectors[0].reshape(-1), vectors[1].reshape(-1)
        of_places, of_place = np.zeros((2, places * size)), np.zeros((3, places))
        vector, following = of_places[0], of_places[1]
        held_one, back, masks = of_place[0], of_place[1], np.zeros(2 * size)
        begin = np.zeros(places, dtype=np.uintp)
        if held >= 0:
            masks[held] = 1.0
        if channel >= 0:
            masks[size + channel] = 1.0
        is_held, is_channel = load(masks, np.uintp(0), size), load(masks, np.uintp(size), size)
        holding, knows_age, reads_back = np.zeros(rows.shape[0] * aged_terms), np.zeros(rows.shape[0]), False
        for who in range(rows.shape[0]):
            for t in range(1 + aged_terms if held >= 0 else 0):
                value = rows[who, holding_at + t * width]
                knows_age[who] = max(knows_age[who], value)
                if t > 0:
                    holding[who * aged_terms + t - 1] = value
            reads_back = reads_back or (channel >= 0 and rows[who, fastest_at + 2] > 0.0)
        for server in range(servers):
            count, wait, cache_age, aged, furthest = 0, waiting[server], age[server], held >= 0, 0.0
            while count < places and members[server, count] >= 0:
                who = members[server, count]
                begin[count] = np.uintp(who) * long
                aged = aged and knows_age[who] > 0.0
                if channel >= 0:
                    furthest = max(furthest, rows[who, 2 * size + channel])
                count += 1
            if count == 0:
                status[server, 0], status[server, 1], status[server, 2], status[server, 3:] = 1.0, 1.0, 0.0, 0.0
                continue
            most_wait, server_at = 1.0 + furthest / channel_cap, np.uintp(server * places * size)
            everything, solo = load(counters, server_at, size), load(numbers, begin[0], size)
            reference = larger(larger(solo, load(numbers, begin[0] + np.uintp(size), size) * compared), tiny)
            for i in range(1, count):
                start = load(numbers, begin[i], size)
                everything, solo = everything + load(counters, server_at + np.uintp(i * size), size), solo + start
                reference = larger(reference, larger(start, load(numbers, begin[i] + np.uintp(size), size) * compared))
            least = where(is_held, smaller(solo, full_kib[server]), 0.0)
            share = smaller(larger(everything, least), caps) / larger(everything, tiny)
            for i in range(count):
                at = np.uintp(i * size)
                store(vector, at, load(counters, server_at + at, size) * share)
            attempt, taken, number, moved, step, done = 0, 0, 0, 0.0, np.inf, False
            while not done and attempt < len(tries):
                damping = tries[attempt, 0]
                total = load(vector, np.uintp(0), size)
                for i in range(1, count):
                    total = total + load(vector, np.uintp(i * size), size)
                added, held_sum, slope = is_channel * (channel_cap * (wait - 1.0)), 0.0, 0.0
                everything = total * 0.0
                for i in range(count):
                    at, row = np.uintp(i * size), begin[i]
                    beside = total - load(vector, at, size)
                    answers = answers_under(numbers, row, beside + added, size, width)
                    served = element(answers, size) * pace[server, i]
                    answer, busy_mpps = first(answers, size), served
                    if reduced:
                        possible, there = served, row + part_at
                        load_share = min(max(offered[server, i] / max(possible, tiny), least_load), 1.0)
                        served, slower = load_share * possible, load_share
                        full = max((load_share - busy) / (1.0 - busy), 0.0)
                        busy_mpps, known = served * full, numbers[there] > 0.0
                        if known:
                            fastest = numbers[row + np.uintp(fastest_at)]
                            slower = min(max(served / max(fastest, tiny), least_load), 1.0)
                        else:
                            there = row
                        beside = beside * where(rates, 1.0 / slower, 1.0)
                        idle = first(answers_under(numbers, there, beside + added, size, width), size)
                        answer = answer * full + idle * (1.0 - full) if known else idle
                    back[i] = element(answers, size + 2) * busy_mpps
                    answer = answer * where(rates, served, 1.0)
                    everything = everything + answer if i > 0 else answer
                    store(following, at, answer)
                    if aged:
                        passed = cache_age * served
                        shares = passed / (packets + passed)
                        factor = load(holding, np.uintp(members[server, i] * aged_terms), aged_terms)
                        held_one[i] = sum_from(numbers[row + np.uintp(holding_at)], shares * factor)
                        steep = sum_from(0.0, shares * (1.0 - shares) * factor)
                        held_sum = held_one[i] if i == 0 else held_sum + held_one[i]
                        slope = steep if i == 0 else slope + steep
                wanted = element(everything, held) if aged else 0.0
                if aged:
                    room = min(max(wanted, element(least, held)), element(caps, held))
                    factor = min(max(1.0 + (room - held_sum) / max(slope, tiny), 1.0 / older), older)
                    cache_age = min(max(cache_age * factor, least_age), most_age)
                    wanted /= max(held_sum, tiny)
                saved = 0.0
                for i in range(count):
                    at = np.uintp(i * size)
                    one, answer = load(vector, at, size), load(following, at, size)
                    if aged:
                        answer = where(is_held, held_one[i] * wanted, answer)
                    answer = one + (answer - one) * damping
                    store(following, at, answer)
                    everything = everything + answer if i > 0 else answer
                    saved = saved + back[i] if i > 0 else back[i]
                if reads_back:
                    part = min(max(element(everything, channel) - channel_cap, 0.0) / max(saved, tiny), 1.0)
                    for i in range(count):
                        at = np.uintp(i * size)
                        answer = load(following, at, size)
                        answer = where(is_channel, larger(answer - part * back[i], 0.0), answer)
                        store(following, at, answer)
                        everything = everything + answer if i > 0 else answer
                share = smaller(larger(everything, least), caps) / larger(everything, tiny)
                change = everything * 0.0
                for i in range(count):
                    at = np.uintp(i * size)
                    value = load(following, at, size) * share
                    change = larger(change, absolute(value - load(vector, at, size)) / reference)
                    store(vector, at, value)
                moved = largest(change)
                if channel >= 0:
                    longer = min(max(wait * (element(everything, channel) / channel_cap), 1.0), most_wait)
                    moved, wait = max(moved, abs(longer - wait)), longer
                number, done = number + 1, moved <= tolerance * damping
                before, step = step, moved
                if done or number >= int(tries[attempt, 1]):
                    status[server, 2] = min(moved / max(before, tiny), 1e9)
                    taken, number, attempt = taken + number, 0, attempt + 1
            status[server, 0], status[server, 1], status[server, 3] = done, taken, step
            waiting[server], age[server] = wait, cache_age
            total = load(vector, np.uintp(0), size)
            for i in range(1, count):
                total = total + load(vector, np.uintp(i * size), size)
            added, change = is_channel * (channel_cap * (wait - 1.0)), total * 0.0
            for i in range(count):
                at = np.uintp(i * size)
                value, there = load(vector, at, size), server_at + at
                after, earlier = larger(total - value, 0.0) + added, load(pressed, there, size)
                change = larger(change, absolute(after - earlier) / larger(earlier, tiny))
                store(counters, there, value)
                store(pressed, there, after)
                speeds[server, i] = element(answers_under(numbers, begin[i], after, size, width), size)
            status[server, 4] = largest(change)

    return settle_servers
