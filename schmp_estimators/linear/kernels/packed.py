"""Kernels on genotypes of two bits each, four in a byte, as PLINK's .bed files have them.

A code is 00 for two copies of a variant's first allele, 10 for one, 11 for none, and 01 if the
genotype is missing.  The complement of a code has as many bits set as there are copies; for a
missing genotype this count is 1.

`codes` (p, w) uint8 has the genotypes of a variant in each row; kernels read the `n_bytes` ≥
`BLOCK` bytes from byte `first` on.  `chosen` (k,) int64 are the rows to read, and `places` (k,)
int64 are the rows of other arrays that belong to them.  With `flip` −1 codes are complemented, with
0 they are not.

A sum over people reads blocks of 256 people: a register of words of 64 bits, each with 32 people.
It masks the two bits of one person in each word, which are then the lowest digits of a float64 (2⁵²
has its unit in its last bit), so that neither shifts nor conversions are needed; `lay_out` divides
the vector by the powers of 4 that this leaves.  Products with copies are exact, so that a processor
may round once for product and sum.  On 5,000 × 6,000 that is 7.5 G genotypes/s, and 6.4 if 1 % are
missing; int8 columns have 5.9, float32 by OpenBLAS has 5.3.
"""

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types

from schmp_estimators.core.jit import inlined, kernel
from schmp_estimators.core.lanes import DOUBLES, LANES, UNROLLED, WORDS, Value, emitted, fold_sums

#: Bytes and people of a block, and people of a word.
BLOCK, PEOPLE, OF_WORD = 64, 256, 32
#: People in half a word: as many as fit the digits of a float64.
_HALF = OF_WORD // 2
#: The low bit of each code; the low half of a word; the bits of 2⁵², and the number itself.
_LOW, _LOWER, _UNIT, _LARGE = 0x5555555555555555, 0xFFFFFFFF, 0x4330000000000000, 2.0**52


class Blocks(NamedTuple):
    """A vector over the people of some bytes, in blocks.

    The last block ends with the last byte, and is zero where it overlaps the one before.
    """

    #: (blocks, 256) by words and the people in them, divided by the power of 4 of a person
    scaled: np.ndarray
    #: (blocks · 256,) in the order of people
    plain: np.ndarray
    #: number of bytes
    n_bytes: int


def lay_out(vector: np.ndarray) -> Blocks:
    """Return the blocks of a vector over at least 256 people, four in each byte."""
    whole = (len(vector) - 1) // PEOPLE * PEOPLE
    plain = np.append(vector[:whole], vector[-PEOPLE:])
    plain[whole : whole + PEOPLE - (len(vector) - whole)] = 0.0
    powers = 0.25 ** (np.arange(OF_WORD) % _HALF)
    scaled = (plain.reshape(-1, LANES, OF_WORD) * powers).transpose(0, 2, 1)
    return Blocks(np.ascontiguousarray(scaled).reshape(-1, PEOPLE), plain, len(vector) // 4)


def _sum_of(pick):
    """Make an instruction: Σ c_i v_i, where c_i is in the bits of person i after `pick`.

    `pick(build, words)` gets a register.  For each word the low bits of missing genotypes are
    stored in `missing`.
    """

    @emitted(lambda *kinds: types.float64)
    def weighted_sum(code, codes, start, n_bytes, laid, flip, missing):
        build, totals = code.builder, code.totals(UNROLLED, DOUBLES)
        end = n_bytes + -BLOCK
        with code.loop(0, laid.shape[0]) as block:
            at = block * BLOCK
            is_whole = build.icmp_unsigned("<", at.value, end.value)
            at = Value(build, build.select(is_whole, at.value, end.value))
            words = codes.load(start + at, WORDS).value
            alone = build.and_(build.and_(words, build.not_(_shifted(build, words))), _all(_LOW))
            missing.store(block * LANES, Value(build, alone))
            words = pick(build, build.xor(words, flip.spread().value))
            halves = build.and_(words, _all(_LOWER)), build.lshr(words, _all(32))
            for half, ones in enumerate(halves):
                numbers = build.or_(ones, _all(_UNIT))
                for place in range(_HALF):
                    digits = build.and_(numbers, _all(_UNIT | 3 << 2 * place))
                    count = Value(build, build.fsub(build.bitcast(digits, DOUBLES), _many(_LARGE)))
                    here = block * PEOPLE + (half * _HALF + place) * LANES
                    totals[place % UNROLLED].add_exact(count, laid.load(here, DOUBLES))
        return fold_sums(totals)

    return weighted_sum


def _all(word):
    return WORDS([word] * LANES)


def _many(number):
    return DOUBLES([number] * LANES)


def _shifted(build, words):
    return build.lshr(words, _all(1))


#: The number of bits that are set in a code, and 1 where both are.
_counted = _sum_of(lambda b, words: b.sub(words, b.and_(_shifted(b, words), _all(_LOW))))
_both = _sum_of(lambda b, words: b.and_(b.and_(words, _shifted(b, words)), _all(_LOW)))


@emitted(lambda *kinds: types.intp)
def _lowest(code, word):
    """Return the number of the lowest bit that is set."""
    return Value(code.builder, code.builder.cttz(word.value, ir.IntType(1)(0)))


@inlined
def _missing_sum(missing, places, vector):
    """Return the sum of `vector` over people whose bit is set in `missing`, in their order.

    Words that are not zero are first moved to the front of `missing`, and the number of the first
    person of each to `places`: most are zero, and a processor cannot foresee which.
    """
    total, one, count = 0.0, np.uint64(1), 0
    for number in range(missing.shape[0]):
        word = missing[number]
        missing[count], places[count] = word, number * OF_WORD
        count += word != 0
    for number in range(count):
        word, place = missing[number], places[number]
        total += vector[place + _lowest(word) // 2]
        word &= word - one
        while word:
            total += vector[place + _lowest(word) // 2]
            word &= word - one
    return total


@kernel
def packed_products(codes, chosen, places, first, vector, flip, out):
    """Set out[·, 0] = Σ_i c_ij v_i and out[·, 1] = Σ v_i over missing genotypes of each row j.

    c is the number of copies of the counted allele, or 1 if it is missing; `vector` v is `Blocks`.
    """
    scaled, plain, n_bytes = vector
    missing = np.empty(scaled.shape[0] * LANES, np.uint64)
    starts = np.empty(scaled.shape[0] * LANES, np.int64)
    for number in range(chosen.shape[0]):
        position, start = places[number], chosen[number] * codes.shape[1] + first
        out[position, 0] = _counted(codes, start, n_bytes, scaled, flip, missing)
        out[position, 1] = _missing_sum(missing, starts, plain)


@kernel
def packed_pairs(codes, chosen, places, first, vector, flip, out):
    """Set out[·, 0] = Σ v_i over people with two counted alleles; see `packed_products`."""
    scaled, _, n_bytes = vector
    missing = np.empty(scaled.shape[0] * LANES, np.uint64)
    for number in range(chosen.shape[0]):
        position, start = places[number], chosen[number] * codes.shape[1] + first
        out[position, 0] = _both(codes, start, n_bytes, scaled, flip, missing)


@kernel
def packed_combine(codes, chosen, places, first, n_bytes, values, out):
    """Add Σ values[·, code] over all rows to `out` (4·n_bytes,).

    `values` (·, 4) are those of the four codes; 0.4 ns per genotype.
    """
    for number in range(chosen.shape[0]):
        row, of_code = codes[chosen[number], first : first + n_bytes], values[places[number]]
        for byte in range(n_bytes):
            four = row[byte]
            out[4 * byte] += of_code[four & 3]
            out[4 * byte + 1] += of_code[four >> 2 & 3]
            out[4 * byte + 2] += of_code[four >> 4 & 3]
            out[4 * byte + 3] += of_code[four >> 6]


@kernel
def packed_take(codes, chosen, places, people, values, out):
    """Set out[·, i] to the value of the genotype of people[i]; `values` as above; 0.9 ns each."""
    for number in range(chosen.shape[0]):
        position, row = places[number], codes[chosen[number]]
        of_code = values[position]
        for i in range(people.shape[0]):
            person = np.uint64(people[i])
            code = row[person // np.uint64(4)] >> np.uint8(person % np.uint64(4) * np.uint64(2)) & 3
            out[position, i] = of_code[code]
