"""Genotypes with names of people and variants, and how they are read from PLINK 1 files."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.inputs.validation import name_input
from schmp_estimators.linear.programs.beside import Beside
from schmp_estimators.linear.programs.matrix import Indices, Storage
from schmp_estimators.linear.programs.missing import with_missing
from schmp_estimators.linear.programs.packed import MISSING, Held, Packed, opened

#: The first bytes of a .bed file, without and with that of the order by variants.
_MAGIC, _BY_VARIANTS = b"\x6c\x1b", b"\x01"
#: Values up to which `numpy.asarray` makes a dense array, and columns that are packed at a time.
_MOST_DENSE, _TOGETHER = 1 << 26, 1024
#: What stands for an unknown phenotype.
_UNKNOWN = -9.0


class Genotypes(Packed):
    """Genotypes of two bits each, with names: the X of estimators.

    `read_plink` and `pack` return objects of this class.  Values are numbers of copies of an
    allele: 0, 1 or 2.  In a fit, a missing one is the mean of its column over the samples that are
    fitted, weighted by `sample_weight` and `class_weight`; the estimator keeps these means as
    `fill_values_`, for predictions.  `numpy.asarray` and `to_array` return float64 with NaN for
    missing genotypes.

    ``G[rows]`` and ``G[rows, columns]`` take slices, integers and boolean masks, and return
    genotypes of two dimensions which share memory with G.  After pickling, the file is read from
    the same path, where it must have the same bytes.

    Attributes
    ----------
    shape : tuple of (int, int)
        Number of people and of variants.
    sample_ids : ndarray of shape (n_people, 2), or None
        Names of families and of people.
    phenotype : ndarray of shape (n_people,), or None
        Phenotypes, NaN where unknown.
    variant_names : ndarray of shape (n_variants,), or None
        Names of variants, which estimators keep as `feature_names_in_`.
    chromosomes : ndarray of shape (n_variants,), or None
        Names of chromosomes.
    positions : ndarray of shape (n_variants,), or None
        Positions on the chromosomes, in base pairs.
    alleles : ndarray of shape (n_variants, 2), or None
        The allele that is counted, and the other one.
    """

    ndim = 2
    sample_ids: Any = None
    phenotype: Any = None
    variant_names: Any = None
    chromosomes: Any = None
    positions: Any = None
    alleles: Any = None

    @property
    def names(self) -> Any:
        """See `Storage`."""
        return () if self.variant_names is None else self.variant_names

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        return f"<Genotypes of {self.n_rows} people and {self.n_columns} variants>"

    def __getitem__(self, chosen: Any) -> "Genotypes":
        rows, columns = chosen if isinstance(chosen, tuple) else (chosen, slice(None))
        return self._at(rows, slice(None) if columns is Ellipsis else columns)

    def rows(self, chosen: Indices) -> Storage:
        """See `Storage`."""
        return self._at(chosen, slice(None))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("an array of packed genotypes is always a copy")
        if self.stored > _MOST_DENSE:
            raise TypeError(
                f"{self!r} would be {8 * self.stored / 2**30:.1f} GiB of float64; give genotypes "
                "to linear models of this package, which read them packed, or take fewer of them, "
                "or call to_array()"
            )
        return self.to_array().astype(dtype or np.float64, copy=False)

    def _at(self, rows: Any, columns: Any) -> "Genotypes":
        every = np.arange(self.n_rows)[rows], np.arange(self.n_columns)[columns]
        people, variants = map(np.atleast_1d, every)
        found = Genotypes(
            self.source, self.people[people], self.chosen[variants], self.first_allele
        )
        for names, numbers in (_OF_PEOPLE, people), (_OF_VARIANTS, variants):
            for name in names:
                values = getattr(self, name)
                setattr(found, name, None if values is None else values[numbers])
        return found


_OF_PEOPLE = "sample_ids", "phenotype"
_OF_VARIANTS = "variant_names", "chromosomes", "positions", "alleles"


def read_plink(prefix: str | os.PathLike[str], *, count_a1: bool = True) -> Genotypes:
    """Open genotypes in PLINK 1 files, without reading them: the .bed file is mapped into memory.

    Parameters
    ----------
    prefix : str or path
        The path of the .bed, .bim and .fam files, without these suffixes.
    count_a1 : bool, default=True
        Whether values are copies of the first allele of the .bim file, which is usually the rarer
        one.  Otherwise they are copies of the second.

    Returns
    -------
    Genotypes
        If all known phenotypes of the .fam file are 1 or 2, they are taken for controls and cases,
        and −9, 0 and NA are NaN.  Other phenotypes are numbers, and −9 and NA are NaN.

    Raises
    ------
    ValueError
        If the .bed file is none, is not in the order of variants, or has another size than the
        other files imply; if people or variants have no names of their own; if a line is no line of
        such a file.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators.genotypes import read_plink
    >>> from schmp_estimators import PrioritizedLassoCV
    >>> G = read_plink("study/all_chromosomes")  # doctest: +SKIP
    >>> G = G[~np.isnan(G.phenotype)]  # doctest: +SKIP
    >>> lasso = PrioritizedLassoCV(cv=5).fit(G, G.phenotype)  # doctest: +SKIP
    >>> G.variant_names[lasso.coef_ != 0]  # doctest: +SKIP
    """
    stem = os.path.abspath(os.fspath(prefix)).removesuffix(".bed")
    people, variants = (_fields(stem + suffix) for suffix in (".fam", ".bim"))
    shape = len(variants), -(-len(people) // 4)
    _check_bed(stem + ".bed", shape, len(people))
    found = Genotypes(
        opened(stem + ".bed", len(_MAGIC + _BY_VARIANTS), shape),
        np.arange(len(people)),
        np.arange(len(variants)),
        count_a1,
    )
    families, names, *_, phenotypes = zip(*people, strict=True)
    chromosomes, variant_names, _, positions, first, second = zip(*variants, strict=True)
    ids = list(zip(families, names, strict=True))
    _check_unique(ids, f"{stem}.fam: two people have the family and name")
    _check_unique(variant_names, f"{stem}.bim: two variants have the name")
    found.sample_ids, found.phenotype = _texts(ids), _phenotype(phenotypes, stem + ".fam")
    found.chromosomes, found.variant_names = _texts(chromosomes), _texts(variant_names)
    found.positions = np.array([_number(one, stem + ".bim") for one in positions], np.int64)
    found.alleles = _texts(list(zip(first, second, strict=True)))[:, :: 1 if count_a1 else -1]
    return found


def pack(doses: Any, *, missing: int = -1, variant_names: Any = None) -> Genotypes:
    """Pack genotypes that are in memory, an array of integers, into two bits each.

    Parameters
    ----------
    doses : array-like of shape (n_people, n_variants)
        Integers: 0, 1 or 2 copies of an allele, or `missing`.
    missing : int, default=-1
        The number that stands for a missing genotype.
    variant_names : array-like of shape (n_variants,), optional
        Names of the columns.

    Returns
    -------
    Genotypes

    Raises
    ------
    ValueError
        If a value is none of these numbers, or two variants have one name.

    Examples
    --------
    >>> from schmp_estimators.genotypes import pack
    >>> G = pack([[0, 1, 2], [-1, 0, 0]], variant_names=["rs1", "rs2", "rs3"])
    >>> G
    <Genotypes of 2 people and 3 variants>
    >>> G[:, 1:].to_array()
    array([[1., 2.],
           [0., 0.]])
    """
    doses = np.asarray(doses)
    if doses.ndim != 2 or doses.dtype.kind not in "iu" or not doses.size:
        raise ValueError(
            "doses must be a two-dimensional array of integers; "
            f"got {doses.dtype} of shape {doses.shape}"
        )
    n_people, n_variants = doses.shape
    codes = np.empty((n_variants, -(-n_people // 4)), np.uint8)
    for start in range(0, n_variants, _TOGETHER):
        part = doses[:, start : start + _TOGETHER]
        alone, other = part == missing, (part < 0) | (part > 2)
        if (strange := other & ~alone).any():
            row, column = np.argwhere(strange)[0]
            raise ValueError(
                f"row {row}, column {start + column} of doses is {part[row, column]}; give 0, 1, "
                f"2, or missing={missing} where a genotype is not known"
            )
        four = np.zeros((4 * codes.shape[1], part.shape[1]), np.uint8)
        four[:n_people] = np.where(alone, MISSING, np.array([3, 2, 0])[np.where(alone, 0, part)])
        shifted = four.reshape(-1, 4, part.shape[1]) << np.array([0, 2, 4, 6], np.uint8)[:, None]
        codes[start : start + _TOGETHER] = np.bitwise_or.reduce(shifted, axis=1).T
    found = Genotypes(Held(codes), np.arange(n_people), np.arange(n_variants), True)
    if variant_names is not None:
        found.variant_names = _texts(variant_names)
        if len(found.variant_names) != n_variants:
            raise ValueError(f"{len(found.variant_names)} variant_names for {n_variants} columns")
        _check_unique(found.variant_names.tolist(), "two variants have the name")
    return found


def join(G: Genotypes, covariates: Any) -> Storage:
    """Put columns of numbers, such as age and sex, beside genotypes: an X for linear models.

    Give the covariates no penalty by their names, with ``penalty_factors={"age": 0, "sex": 0}``.
    Missing entries are replaced by means, as those of genotypes are.

    Parameters
    ----------
    G : Genotypes
    covariates : data frame or array-like of shape (n_people, k)
        Numbers; NaN where they are missing.  Rows of a pandas data frame may have any order, and
        there may be more than people: its index has the names of people, or pairs of the names of
        families and people, as in ``G.sample_ids``.  Rows of all else are in the order of G.

    Returns
    -------
    storage
        Its columns are those of G, and then the covariates.  It has rows by index, as G has.

    Raises
    ------
    ValueError
        If there are no covariates for some people, or they are no finite numbers; if the index has
        a name twice, or a covariate the name of a variant.

    Examples
    --------
    >>> from schmp_estimators.genotypes import join, pack
    >>> X = join(pack([[0, 1, 2], [-1, 0, 0]]), [[51.0], [48.0]])
    >>> X.shape
    (2, 4)
    """
    labels = list(map(str, getattr(covariates, "columns", ())))
    with name_input(covariates, "covariates"):
        table = np.asarray(covariates, np.float64)
    if table.ndim != 2 or np.isinf(table).any():
        raise ValueError(
            f"covariates must be a table of finite numbers; got an array of shape {table.shape}"
        )
    if hasattr(covariates, "index") and G.sample_ids is not None:
        table = table[_partners(G.sample_ids, covariates.index.tolist())]
    if len(table) != len(G):
        raise ValueError(f"covariates has {len(table)} rows for {len(G)} people")
    found = Beside(G, with_missing(table, np.nan), labels if len(G.names) else ())
    _check_unique(found.names, "X would have two columns with the name")
    return found


def _partners(people: Any, index: list[Any]) -> list[int]:
    """Return the position in an index of each person, of whom family and name are given."""
    by_pairs = bool(index) and isinstance(index[0], tuple)
    ids = list(map(tuple, people)) if by_pairs else list(people[:, 1])
    keys = [tuple(map(str, one)) if by_pairs else str(one) for one in index]
    _check_unique(keys, "the index of covariates has twice")
    _check_unique(ids, "the index of covariates needs families, too, because two people are named")
    places = {key: place for place, key in enumerate(keys)}
    if absent := [one for one in ids if one not in places]:
        more = f" and {len(absent) - 5} more" if len(absent) > 5 else ""
        raise ValueError(
            f"covariates has no row for {', '.join(map(repr, absent[:5]))}{more}; its index must "
            "have the names of all people of G, or pass an array in their order"
        )
    return [places[one] for one in ids]


def _fields(path: str) -> list[list[str]]:
    """Return the six fields of each line of a .fam or .bim file."""
    found = [line.split() for line in Path(path).read_text().splitlines()]
    for number, fields in enumerate(found, 1):
        if len(fields) != 6:
            raise ValueError(f"{path}: line {number} has {len(fields)} fields instead of 6")
    if not found:
        raise ValueError(f"{path} is empty")
    return found


def _check_bed(path: str, shape: tuple[int, int], n_people: int) -> None:
    """Raise ValueError if a file is no .bed file with a row for each variant of this shape."""
    with open(path, "rb") as file:
        begin = file.read(len(_MAGIC + _BY_VARIANTS))
    if begin[:2] != _MAGIC:
        raise ValueError(f"{path} is no .bed file of PLINK 1: it begins with the bytes {begin!r}")
    if begin[2:] != _BY_VARIANTS:
        raise ValueError(
            f"{path} is not in the order of variants; write it anew with plink --make-bed"
        )
    expected, size = len(begin) + shape[0] * shape[1], os.path.getsize(path)
    if size != expected:
        raise ValueError(
            f"{path} has {size} bytes, but {n_people} people (.fam) and {shape[0]} variants (.bim) "
            f"take {expected}; it is truncated, or belongs to other files"
        )


def _check_unique(names: Sequence[Any], what: str) -> None:
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise ValueError(f"{what} {twice!r}; give each its own")


def _texts(values: Any) -> NDArray[Any]:
    return np.array(values, object)


def _number(text: str, path: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{path} has {text!r} where a number should be") from None


def _phenotype(texts: Sequence[str], path: str) -> NDArray[np.float64]:
    """Return phenotypes as numbers; see `read_plink`."""
    values = np.array([np.nan if one == "NA" else _number(one, path) for one in texts])
    values[values == _UNKNOWN] = np.nan
    if (np.isin(values, [0.0, 1.0, 2.0]) | np.isnan(values)).all():  # cases and controls
        values[values == 0.0] = np.nan
    return values
