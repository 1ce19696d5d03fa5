"""Genotypes of two bits each, as they lie in a PLINK .bed file, or packed in memory.

Rows and columns are chosen by their numbers, and nothing is copied: a vector over some people
becomes one over all people of the bytes that these are in, with zeros for the others.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from schmp_estimators.core.inputs.files import Piece, checksum_of
from schmp_estimators.core.places.threads import share_here
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels import packed
from schmp_estimators.linear.programs.matrix import Floats, Indices, Storage

#: The code of a missing genotype, and copies of the first allele by code.
MISSING, COPIES = 1, np.array([2.0, np.nan, 1.0, 0.0])
#: Number of columns that a thread reads at a time.
_TOGETHER = 1024


class Held:
    """Packed genotypes in memory: `codes` (p, w) uint8 has the bytes of a variant in each row."""

    def __init__(self, codes: np.ndarray) -> None:
        short = max(0, packed.BLOCK - codes.shape[1])
        self.codes = freeze(np.ascontiguousarray(np.pad(codes, ((0, 0), (0, short)))))
        self.shape: tuple[int, ...] = self.codes.shape


class Mapped:
    """Packed genotypes in a file that is mapped into memory; pickled as its path and checksum.

    Parameters
    ----------
    path : str
    offset : int
        Bytes before the genotypes.
    shape : tuple of (int, int)
    """

    def __init__(self, path: str, offset: int, shape: tuple[int, int]) -> None:
        self._given, self._stamp = (path, offset, "|u1", shape), _stamp(path)
        self.shape = shape
        self._codes: Any = np.memmap(path, np.uint8, "r", offset, shape).view(np.ndarray)
        self._checksum: int | None = None

    @property
    def codes(self) -> np.ndarray:
        """The bytes of a variant in each row.

        Raises
        ------
        ValueError
            If the file has changed: what is mapped would be other data, or would end the process;
            or if the file is not the one that was pickled.
        """
        stamp = _stamp(self._given[0])
        if self._codes is None:
            assert self._checksum is not None
            self._codes, self._stamp = _verified(Piece(*self._given, self._checksum), stamp), stamp
        if stamp != self._stamp:
            raise ValueError(f"{self._given[0]!r} has changed since it was opened; open it again")
        found: np.ndarray = self._codes
        return found

    def __getstate__(self) -> dict[str, Any]:
        if self._checksum is None:
            self._checksum = checksum_of(self.codes)
        return vars(self) | {"_codes": None}


def opened(path: str, offset: int, shape: tuple[int, int]) -> Held | Mapped:
    """Return genotypes in a file; they are read if there are fewer in a row than kernels need."""
    found = Mapped(path, offset, shape)
    return found if shape[1] >= packed.BLOCK else Held(found.codes)


def _stamp(path: str) -> tuple[int, ...]:
    """Return what changes if somebody writes to a file, or puts another one in its place."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_size, found.st_mtime_ns, found.st_ino


@lru_cache(maxsize=128)
def _verified(piece: Piece, stamp: tuple[int, ...]) -> np.ndarray:
    """Return the bytes of a mapped file, which each process compares once."""
    return piece.mapped().view(np.ndarray)


class Packed(Storage):
    """Some rows and columns of packed genotypes.

    Parameters
    ----------
    sources : sequence of Held or Mapped
        All genotypes; a person has the same place in each.
    people : ndarray of int
        The rows, counted in a source.
    chosen : ndarray of int
        The columns, counted through all sources.
    first_allele : bool
        Whether copies of the first allele are counted, or of the second.
    fill : ndarray of shape (n_columns,), optional
        What stands for missing genotypes; by default NaN.
    """

    dtype = np.dtype(np.float64)
    may_miss = True

    def __init__(
        self,
        sources: Sequence[Held | Mapped],
        people: Indices,
        chosen: Indices,
        first_allele: bool,
        fill: Floats | None = None,
    ) -> None:
        self.sources, self.people, self.chosen = tuple(sources), freeze(people), freeze(chosen)
        self.first_allele = first_allele
        self.fill = freeze(np.full(len(chosen), np.nan) if fill is None else fill)

    @property
    def shape(self) -> tuple[int, int]:
        """See `Storage`."""
        return len(self.people), len(self.chosen)

    @property
    def n_floats(self) -> int:
        """See `Storage`."""
        return self.stored // 32

    def rows(self, chosen: Indices) -> Storage:
        """See `Storage`."""
        people = self.people[chosen]
        return Packed(self.sources, people, self.chosen, self.first_allele, self.fill)

    def filled(self, values: Floats) -> Storage:
        """See `Storage`."""
        return Packed(self.sources, self.people, self.chosen, self.first_allele, values)

    def known_sums(self, weights: Floats) -> Floats:
        """See `Storage`."""
        counts, missing = self._sums(packed.packed_products, weights, slice(None))
        return np.stack([counts - missing, missing])

    def gradient(self, vector: Floats, scope: Indices | None) -> Floats:
        """See `Storage`."""
        here = slice(None) if scope is None else scope
        counts, missing = self._sums(packed.packed_products, vector, here)
        return counts + _times(self.fill[here] - 1.0, missing)

    def combine(self, columns: Indices, factors: Floats) -> Floats:
        """See `Storage`."""
        first, n_bytes = self._bytes
        out, values = np.zeros(4 * n_bytes), self._values(columns) * factors[:, None]
        for each in self._each(columns):
            packed.packed_combine(*each, first, n_bytes, freeze(values), out)
        return out[self.people - 4 * first]

    def moments(self, weights: Floats, vector: Floats) -> tuple[Floats, Floats, Floats]:
        """See `Storage`."""
        weights = weights if len(weights) else np.ones(self.n_rows)
        counts, missing = self._sums(packed.packed_products, weights, slice(None))
        pairs = self._sums(packed.packed_pairs, weights, slice(None))[0]
        sums = counts + _times(self.fill - 1.0, missing)
        squares = counts + 2.0 * pairs + _times(self.fill**2 - 1.0, missing)
        return sums, squares, self.gradient(vector, None)

    def take_dense(self, columns: Indices, rows: Indices | None = None) -> Floats:
        """See `Storage`."""
        people = self.people if rows is None else self.people[rows]
        out = np.empty((len(columns), len(people)))
        for each in self._each(columns):
            packed.packed_take(*each, freeze(people), freeze(self._values(columns)), out)
        return out

    def identity(self) -> Iterable[np.ndarray]:
        """See `Storage`."""
        yield from (self.people, self.chosen, self.fill, np.array(self.first_allele))
        for start in range(0, self.n_columns, _TOGETHER):
            for codes, chosen, _ in self._each(slice(start, start + _TOGETHER)):
                yield codes[chosen]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state; if all genotypes are in memory, only with bytes that are used."""
        state = vars(self).copy()
        if all(isinstance(source, Held) for source in self.sources):
            first, n_bytes = self._bytes
            used = np.empty((self.n_columns, n_bytes), np.uint8)
            for codes, chosen, places in self._each(slice(None)):
                used[places] = codes[chosen, first : first + n_bytes]
            state["sources"], state["people"] = (Held(used),), self.people - 4 * first
            state["chosen"] = np.arange(self.n_columns)
        return state

    @property
    def _bytes(self) -> tuple[int, int]:
        """The first byte, and the number of bytes, of all rows; at least what kernels need."""
        width = min(source.shape[1] for source in self.sources)
        first, last = int(self.people.min(initial=4 * width)), int(self.people.max(initial=-1))
        first = max(0, min(first // 4, width - packed.BLOCK))
        return first, max(last // 4 + 1 - first, packed.BLOCK)

    def _each(self, columns: Indices | slice) -> Iterator[tuple[np.ndarray, Indices, Indices]]:
        """Yield the bytes of each source, the rows there of columns, and the places of these.

        Sources without any of these columns are left out.
        """
        chosen, first = self.chosen[columns], 0
        for source in self.sources:
            places = np.flatnonzero((chosen >= first) & (chosen < first + source.shape[0]))
            if len(places):
                yield freeze(source.codes), freeze(chosen[places] - first), freeze(places)
            first += source.shape[0]

    def _values(self, columns: Indices) -> Floats:
        """Return the values of the four codes in some columns, (k, 4)."""
        values = np.tile(COPIES if self.first_allele else 2.0 - COPIES, (len(columns), 1))
        values[:, MISSING] = self.fill[columns]
        return values

    def _sums(self, kernel: Any, vector: Floats, columns: Indices | slice) -> Floats:
        """Return what a kernel finds for a vector and some columns, (2, k), which threads share."""
        first, n_bytes = self._bytes
        out = np.empty((len(self.chosen[columns]), 2))
        spread = np.bincount(self.people - 4 * first, vector, 4 * n_bytes)
        blocks = freeze(packed.lay_out(spread))
        flip = -1 if self.first_allele else 0

        def find(job: tuple[np.ndarray, Indices, Indices]) -> None:
            kernel(*job, first, blocks, flip, out)

        jobs = [
            (codes, *(freeze(one[start : start + _TOGETHER]) for one in (chosen, places)))
            for codes, chosen, places in self._each(columns)
            for start in range(0, len(chosen), _TOGETHER)
        ]
        share_here(find, jobs)
        return out.T


def _times(factors: Floats, missing: Floats) -> Floats:
    """Return the products; a factor may be NaN where nothing is missing."""
    return np.multiply(factors, missing, where=missing != 0.0, out=np.zeros_like(missing))
