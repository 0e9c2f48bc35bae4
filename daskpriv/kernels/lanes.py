"""Thirty-two rows at once: lower bounds of distances on explicit vector lanes.

numba's own vectoriser does not manage these loops, so they are written as LLVM vector operations on `<32 x i16>`.
LLVM lowers them to AVX-512, AVX2, SSE or NEON, whatever the processor has; nothing here names an instruction set.
Columns are a loop inside, so that one compiled kernel serves tables of every shape.

Query values come as 32-bit words that repeat a code (twice for 16 bits, four times for 8): processors load and
spread 32-bit words in one operation.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic

LANES = 32
intrinsic: Any = _intrinsic  # called in compiled code only, without the typing context that its definition names
_EVERY = 8  # columns between two looks at whether any lane is still below the limit

_I1, _I8, _I16, _I32, _I64 = (ir.IntType(b) for b in (1, 8, 16, 32, 64))
_WORDS = ir.VectorType(_I16, LANES)
_BYTES = ir.VectorType(_I8, LANES)
_FLAGS = ir.VectorType(_I1, LANES)


def _data(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return context.make_array(kind)(context, builder, value).data


def _spread(builder: Any, word: Any, vector: Any) -> Any:
    """A 32-bit word repeated over a vector of smaller integers."""
    words = vector.count * vector.element.width // 32
    one = builder.insert_element(ir.Constant(ir.VectorType(_I32, words), ir.Undefined), word, _I32(0))
    zeros = ir.Constant(ir.VectorType(_I32, words), [0] * words)
    return builder.bitcast(builder.shuffle_vector(one, one, zeros), vector)


def _word(builder: Any, pointer: Any, place: Any) -> Any:
    return builder.load(builder.gep(pointer, [place]), align=4)


def _lanes(builder: Any, pointer: Any, place: Any, vector: Any) -> Any:
    """32 elements starting at `place` (a multiple of 32 of an array that starts on a cache line)."""
    address = builder.bitcast(builder.gep(pointer, [place]), ir.PointerType(vector))
    return builder.load(address, align=vector.element.width // 8)


def _saturating(builder: Any, operation: str, a: Any, b: Any) -> Any:
    kind = ir.FunctionType(_WORDS, [_WORDS, _WORDS])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{operation}.sat.v{LANES}i16")
    return builder.call(function, [a, b])


def _plus(builder: Any, a: Any, b: Any) -> Any:
    return _saturating(builder, "uadd", a, b)


def _minus(builder: Any, a: Any, b: Any) -> Any:
    return _saturating(builder, "usub", a, b)


def _charge(builder: Any, add: Any, column: Any, flags: Any) -> Any:
    """What a mismatch in this column adds, in the lanes of `flags`."""
    return builder.select(flags, _spread(builder, _word(builder, add, column), _WORDS), _nothing(_WORDS))


def _nothing(vector: Any) -> Any:
    return ir.Constant(vector, [0] * LANES)


def _outside(builder: Any, num: Any, at: Any, q_num: Any, cap: Any, column: Any) -> Any:
    """How far the query's code is outside 32 intervals, at most its cap: lowest codes at `at`, highest after them."""
    mine = _spread(builder, _word(builder, q_num, column), _WORDS)
    below = _minus(builder, _lanes(builder, num, at, _WORDS), mine)
    above = _minus(builder, mine, _lanes(builder, num, builder.add(at, _I64(LANES)), _WORDS))
    return _least(builder, builder.or_(below, above), _spread(builder, _word(builder, cap, column), _WORDS))


def _least(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.icmp_unsigned("<", a, b), a, b)


def _mask(builder: Any, flags: Any) -> Any:
    return builder.bitcast(flags, _I32)


class _Sum:
    """Loops over columns that add to 32 lanes and leave as soon as every lane is above the limit."""

    def __init__(self, builder: Any, base: Any, limit: Any) -> None:
        self.b = builder
        self.limit = self._splat(limit)
        self.total = self._splat(base)
        self.exits: list[tuple[Any, Any]] = []
        self.out = builder.append_basic_block("lanes.out")

    def _splat(self, value: Any) -> Any:
        word = self.b.zext(value, _I32)
        return _spread(self.b, self.b.or_(word, self.b.shl(word, _I32(16))), _WORDS)

    def columns(self, count: Any, term: Any) -> None:
        """Add term(column) for column = 0 .. count - 1."""
        b = self.b
        before = b.block
        head, body, look, step, done = (
            b.append_basic_block(f"lanes.{n}") for n in ("head", "body", "look", "step", "done")
        )
        b.branch(head)
        b.position_at_end(head)
        i = b.phi(_I64)
        total = b.phi(_WORDS)
        i.add_incoming(_I64(0), before)
        total.add_incoming(self.total, before)
        b.cbranch(b.icmp_signed("<", i, count), body, done)
        b.position_at_end(body)
        grown = _plus(b, total, term(i))
        after = b.add(i, _I64(1))
        often = b.icmp_unsigned("==", b.and_(after, _I64(_EVERY - 1)), _I64(0))
        b.cbranch(often, look, step)
        b.position_at_end(look)
        alive = _mask(b, b.icmp_unsigned("<=", grown, self.limit))
        self.exits.append((grown, b.block))
        b.cbranch(b.icmp_unsigned("==", alive, _I32(0)), self.out, step)
        b.position_at_end(step)
        i.add_incoming(after, step)
        total.add_incoming(grown, step)
        b.branch(head)
        b.position_at_end(done)
        self.total = total

    def finish(self, out: Any) -> Any:
        """Store the sums; return the mask of lanes at or below the limit."""
        b = self.b
        self.exits.append((self.total, b.block))
        b.branch(self.out)
        b.position_at_end(self.out)
        total = b.phi(_WORDS)
        for value, block in self.exits:
            total.add_incoming(value, block)
        b.store(total, b.bitcast(out, ir.PointerType(_WORDS)), align=2)
        return _mask(b, b.icmp_unsigned("<=", total, self.limit))


def _either(builder: Any, flag: Any, yes: Any, no: Any) -> tuple[Any, Any]:
    """A loop count for each of two variants of a loop: the one that does not apply runs zero times."""
    zero = _I64(0)
    return builder.select(flag, yes, zero), builder.select(flag, zero, no)


@intrinsic
def row_bounds(
    typingctx, num, num_at, nom, nom_at, q_num, cap, q_nom, add, ones, pairs, clip, cats, drop, base, limit, out
):
    """Bounds of the 32 rows of one tile; returns the mask of lanes at or below `limit`, sums in `out`.

    num, num_at    uint16 planes of 32 and where the tile's begin: `ones` columns of one plane (code), then `pairs`
                   columns of two (lowest, highest code; all codes where the cell is missing)
    nom, nom_at    uint8 planes: `cats` columns
    q_num, cap     uint32: the query's code and the most a column may add
    q_nom, add     uint32: the query's byte and what a mismatch adds
    clip           terms of one-plane columns may exceed `cap` (or count nothing: cap 0)
    drop           byte 0 matches everything
    base, limit    uint16: where the sum starts, what it must not pass
    """
    signature = types.uint32(
        num, types.int64, nom, types.int64, q_num, cap, q_nom, add, types.int64, types.int64, types.boolean,
        types.int64, types.boolean, types.uint16, types.uint16, out,
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        kinds = signature.args
        num, nom, q_num, cap, q_nom, add, out = (
            _data(context, builder, kinds[i], args[i]) for i in (0, 2, 4, 5, 6, 7, 15)
        )
        num_at, nom_at, ones, pairs, clip, cats, drop, base, limit = (args[i] for i in (1, 3, 8, 9, 10, 11, 12, 13, 14))
        b = builder
        clip, drop = (b.trunc(v, _I1) if v.type != _I1 else v for v in (clip, drop))
        total = _Sum(b, base, limit)

        def place(at, column):
            return b.add(at, b.shl(column, _I64(5)))

        def differ(column):
            code = _lanes(b, nom, place(nom_at, column), _BYTES)
            return code, b.icmp_unsigned("!=", code, _spread(b, _word(b, q_nom, column), _BYTES))

        def mismatch(column):
            return _charge(b, add, column, differ(column)[1])

        def known_mismatch(column):
            code, flags = differ(column)
            return _charge(b, add, column, b.and_(flags, b.icmp_unsigned("!=", code, _nothing(_BYTES))))

        def gap(column):
            mine = _spread(b, _word(b, q_num, column), _WORDS)
            code = _lanes(b, num, place(num_at, column), _WORDS)
            return b.or_(_minus(b, mine, code), _minus(b, code, mine))

        def clipped(column):
            return _least(b, gap(column), _spread(b, _word(b, cap, column), _WORDS))

        def outside(k):
            at = place(num_at, b.add(ones, b.shl(k, _I64(1))))
            return _outside(b, num, at, q_num, cap, b.add(ones, k))

        dropping, plain = _either(b, drop, cats, cats)
        clipping, free = _either(b, clip, ones, ones)
        total.columns(plain, mismatch)
        total.columns(dropping, known_mismatch)
        total.columns(free, gap)
        total.columns(clipping, clipped)
        total.columns(pairs, outside)
        return total.finish(out)

    return signature, codegen


@intrinsic
def box_bounds(typingctx, num, num_at, held, held_at, q_num, cap, q_bit, add, numbers, cats, base, limit, out):
    """Bounds of 32 boxes; returns the mask of boxes at or below `limit`, sums in `out`.

    num, num_at    uint16 planes: lowest and highest code of each of `numbers` columns
    held, held_at  uint32 words: which of the 32 boxes hold a byte; the query's word of column c is `q_bit[c]`
    """
    signature = types.uint32(
        num, types.int64, held, types.int64, q_num, cap, q_bit, add, types.int64, types.int64, types.uint16,
        types.uint16, out,
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        kinds = signature.args
        num, held, q_num, cap, q_bit, add, out = (
            _data(context, builder, kinds[i], args[i]) for i in (0, 2, 4, 5, 6, 7, 12)
        )
        num_at, held_at, numbers, cats, base, limit = (args[i] for i in (1, 3, 8, 9, 10, 11))
        b = builder
        total = _Sum(b, base, limit)

        def absent(column):
            bit = b.zext(_word(b, q_bit, column), _I64)
            flags = b.bitcast(b.not_(_word(b, held, b.add(held_at, bit))), _FLAGS)
            return _charge(b, add, column, flags)

        def outside(column):
            return _outside(b, num, b.add(num_at, b.shl(column, _I64(6))), q_num, cap, column)

        total.columns(cats, absent)
        total.columns(numbers, outside)
        return total.finish(out)

    return signature, codegen


@intrinsic
def least_lane(typingctx, bounds, mask):
    """The first lane among `mask` (not 0) with the least bound."""
    signature = types.int64(bounds, types.uint32)

    def codegen(context, builder, signature, args):
        b = builder
        values = _lanes(b, _data(context, b, signature.args[0], args[0]), _I64(0), _WORDS)
        flags = b.bitcast(args[1], _FLAGS)
        kept = b.select(flags, values, ir.Constant(_WORDS, [0xFFFF] * LANES))
        function = cgutils.get_or_insert_function(
            b.module, ir.FunctionType(_I16, [_WORDS]), "llvm.vector.reduce.umin.v32i16"
        )
        least = b.call(function, [kept])
        word = b.zext(least, _I32)
        found = b.icmp_unsigned("==", kept, _spread(b, b.or_(word, b.shl(word, _I32(16))), _WORDS))
        lanes = b.and_(_mask(b, found), args[1])
        return b.zext(b.cttz(lanes, _I1(0)), _I64)

    return signature, codegen


@intrinsic
def first_lane(typingctx, mask):
    """The lowest set bit of `mask` (not 0)."""

    def codegen(context, builder, signature, args):
        return builder.zext(builder.cttz(args[0], _I1(0)), _I64)

    return types.int64(types.uint32), codegen
