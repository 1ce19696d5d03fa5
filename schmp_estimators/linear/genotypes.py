"""Genotypes with names of people and variants, and how they are read from files of PLINK."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.inputs.validation import name_input
from schmp_estimators.linear.programs.beside import Beside
from schmp_estimators.linear.programs.matrix import Storage
from schmp_estimators.linear.programs.missing import with_missing
from schmp_estimators.linear.programs.packed import MISSING, Held, Mapped, Packed, opened

#: The first bytes of a .bed file, without and with that of the order by variants.
_MAGIC, _BY_VARIANTS = b"\x6c\x1b", b"\x01"
#: Codes of genotypes by copies of the first allele; the last one is that of −1.
_CODES = np.array([3, 2, 0, MISSING], np.uint8)
#: Values up to which `numpy.asarray` makes a dense array, and columns that are packed at a time.
_MOST_DENSE, _TOGETHER = 1 << 26, 1024
#: What stands for an unknown phenotype.
_UNKNOWN = -9.0
#: Suffixes of the files with people and variants, by those of genotypes.
_BESIDE = {".bed": (".fam", ".bim"), ".pgen": (".psam", ".pvar")}
#: Columns of files without a header.
_PEOPLE = "FID", "IID", "PAT", "MAT", "SEX", "PHENO1"
_VARIANTS = "CHROM", "ID", "CM", "POS", "A1", "A2"


class Genotypes(Packed):
    """Genotypes of two bits each, with names: an X for linear models.

    `read_plink` and `pack` return objects of this class.  Values are numbers of copies of an
    allele: 0, 1 or 2.  In a fit, a missing genotype is replaced by the mean of its column over the
    fitted samples, weighted by `sample_weight` and `class_weight`.  The estimator keeps these means
    as `fill_values_`, for predictions.  `numpy.asarray` and `to_array` return float64 with NaN for
    missing genotypes.

    ``G[rows]`` and ``G[rows, columns]`` take slices, integers and boolean masks, and return
    two-dimensional genotypes that share memory with G.  A pickle of genotypes in a .bed file has
    the path of the file and a checksum.  The file must still have the same bytes.

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
        The counted allele and the other allele of each variant.
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
        rows, columns = chosen if isinstance(chosen, tuple) else (chosen, ...)
        people = np.atleast_1d(np.arange(self.n_rows)[rows])
        variants = np.atleast_1d(np.arange(self.n_columns)[columns])
        found = Genotypes(
            self.sources, self.people[people], self.chosen[variants], self.first_allele
        )
        for names, numbers in (_OF_PEOPLE, people), (_OF_VARIANTS, variants):
            for name in names:
                values = getattr(self, name)
                setattr(found, name, None if values is None else values[numbers])
        return found

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


_OF_PEOPLE = "sample_ids", "phenotype"
_OF_VARIANTS = "variant_names", "chromosomes", "positions", "alleles"


def read_plink(prefix: str | os.PathLike[str], *, count_a1: bool = True) -> Genotypes:
    """Open genotypes in files of PLINK: a .bed file is mapped into memory, a .pgen file is read.

    Parameters
    ----------
    prefix : str or path
        The path of the .bed, .bim and .fam files of PLINK 1, or of the .pgen, .pvar and .psam files
        of PLINK 2, without these suffixes.  If there are files of both, end it with .pgen to read
        those of PLINK 2.
    count_a1 : bool, default=True
        Whether values count copies of the first allele of the .bim file, which is usually the rarer
        one.  Otherwise they count copies of the second.  In a .pgen file the first allele is the
        alternate one, and the second is the reference allele, as in the .bed files that PLINK 2
        makes of it.

    Returns
    -------
    Genotypes
        The genotypes.  If all known phenotypes are 1 or 2, they mean controls and cases, and −9, 0
        and NA become NaN.  Otherwise only −9 and NA become NaN.  In a .psam file the phenotype is
        the first column that holds no name, parent or sex.

    Raises
    ------
    ValueError
        If a file does not have the format of its suffix.  If the .bed file is not stored variant by
        variant, or has another size than the other files imply.  If two people or two variants have
        one name.  If variants of a .pgen file have more than two alleles.
    ImportError
        If the package pgenlib, which reads .pgen files, is not installed.

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
    stem, suffix = os.path.splitext(os.path.abspath(os.fspath(prefix)))
    if suffix not in _BESIDE:
        stem += suffix
        suffix = next((one for one in _BESIDE if os.path.exists(stem + one)), ".bed")
    named = [stem + one for one in _BESIDE[suffix]]
    people = _table(named[0], _PEOPLE)
    n_people = len(people["IID"])
    source: Held | Mapped
    if suffix == ".pgen":
        source, variants = _read_pgen(stem, n_people)
    else:
        variants = _table(named[1], _VARIANTS)
        shape = len(variants["ID"]), -(-n_people // 4)
        _check_bed(stem + ".bed", shape, n_people)
        source = opened(stem + ".bed", len(_MAGIC + _BY_VARIANTS), shape)
    found = Genotypes([source], np.arange(n_people), np.arange(source.shape[0]), count_a1)
    ids = list(zip(people.get("FID", ["0"] * n_people), people["IID"], strict=True))
    _check_unique(ids, f"{named[0]}: two people have the family and name")
    _check_unique(variants["ID"], f"{named[1]}: two variants have the name")
    of_traits = [one for name, one in people.items() if name not in {*_PEOPLE[:-1], "SID"}]
    found.phenotype = _phenotype([*of_traits, ["NA"] * n_people][0], named[0])
    found.sample_ids, found.variant_names = _texts(ids), _texts(variants["ID"])
    found.chromosomes = _texts(variants["CHROM"])
    found.positions = np.array([_number(one, named[1]) for one in variants["POS"]], np.int64)
    alleles = list(zip(variants["A1"], variants["A2"], strict=True))
    found.alleles = _texts(alleles)[:, :: 1 if count_a1 else -1]
    return found


def pack(doses: Any, *, missing: int = -1, variant_names: Any = None) -> Genotypes:
    """Pack genotypes, an array of integers, into two bits each.

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

    def some(first: int, last: int) -> NDArray[Any]:
        part = doses[:, first:last]
        alone = part == missing
        if (strange := ((part < 0) | (part > 2)) & ~alone).any():
            row, column = np.argwhere(strange)[0]
            raise ValueError(
                f"row {row}, column {first + column} of doses is {part[row, column]}; give 0, 1, "
                f"2, or missing={missing} where a genotype is not known"
            )
        return np.where(alone, -1, part).T

    source = _packed(some, n_people, n_variants)
    found = Genotypes([source], np.arange(n_people), np.arange(n_variants), True)
    if variant_names is not None:
        found.variant_names = _texts(variant_names)
        if len(found.variant_names) != n_variants:
            raise ValueError(f"{len(found.variant_names)} variant_names for {n_variants} columns")
        _check_unique(found.variant_names.tolist(), "two variants have the name")
    return found


def _packed(some: Callable[[int, int], NDArray[Any]], n_people: int, n_variants: int) -> Held:
    """Return packed genotypes; ``some(first, last)`` are copies (k, n_people), −1 if missing."""
    codes = np.empty((n_variants, -(-n_people // 4)), np.uint8)
    for first in range(0, n_variants, _TOGETHER):
        part = some(first, min(first + _TOGETHER, n_variants))
        four = np.zeros((len(part), codes.shape[1], 4), np.uint8)
        four.reshape(len(part), -1)[:, :n_people] = _CODES[part]
        four <<= np.array([0, 2, 4, 6], np.uint8)
        codes[first : first + _TOGETHER] = np.bitwise_or.reduce(four, axis=2)
    return Held(codes)


def _read_pgen(stem: str, n_people: int) -> tuple[Held, dict[str, Sequence[Any]]]:
    """Return hard calls of a .pgen file, and the columns of its .pvar file."""
    try:
        import pgenlib  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            f"{stem}.pgen is read by the package pgenlib: pip install pgenlib, or convert it with "
            f"plink2 --pfile {stem} --max-alleles 2 --make-bed --out {stem}"
        ) from error
    pgen, pvar, zst = (os.fsencode(stem + suffix) for suffix in (".pgen", ".pvar", ".pvar.zst"))
    try:
        variants = pgenlib.PvarReader(pvar if os.path.exists(pvar) else zst)
        if variants.get_max_allele_ct() > 2:
            raise ValueError(
                f"{stem}.pgen has variants of more than two alleles; leave them out with "
                f"plink2 --pfile {stem} --max-alleles 2 --make-pgen --out, or split them"
            )
        count = variants.get_variant_ct()
        reader = pgenlib.PgenReader(pgen, raw_sample_ct=n_people, variant_ct=count)

        def some(first: int, last: int) -> NDArray[Any]:
            copies = np.empty((last - first, n_people), np.int8)
            reader.read_range(first, last, copies)
            return np.maximum(copies, -1)

        found = _packed(some, n_people, count)
    except RuntimeError as error:
        raise ValueError(f"pgenlib cannot read {stem}.pgen and its .pvar file: {error}") from None
    ask = variants.get_variant_chrom, variants.get_variant_id, variants.get_variant_pos
    texts = [[_text(one(number)) for number in range(count)] for one in ask]
    alleles = [
        [_text(variants.get_allele_code(number, one)) for number in range(count)] for one in (1, 0)
    ]
    return found, dict(zip(("CHROM", "ID", "POS", "A1", "A2"), texts + alleles, strict=True))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def join(*parts: Any) -> Storage:
    """Join genotypes of the same people, and covariates such as age and sex, into one X.

    To leave covariates without a penalty, pass ``penalty_factors={"age": 0, "sex": 0}`` to the
    estimator.  Missing covariates are replaced by means, like missing genotypes.

    Parameters
    ----------
    *parts : Genotypes, and data frames or array-likes of shape (n_people, k)
        Genotypes of one or more chromosomes, and covariates: numbers, NaN where they are missing.
        If the genotypes have `sample_ids`, the index of a pandas data frame has the names of
        people, or pairs of family and person.  Its rows may then have any order, and may include
        other people.  All other rows are in the order of the genotypes.

    Returns
    -------
    Genotypes or storage
        Its columns are those of all genotypes, and then the covariates.  With covariates, it can be
        indexed by rows, but has no `sample_ids`, `phenotype` or other data about people and
        variants.

    Raises
    ------
    ValueError
        If genotypes are not of the same people in the same order.  If a person has no row of
        covariates, or a covariate is infinite.  If the index has a name twice, or two columns have
        one name.

    Examples
    --------
    >>> from schmp_estimators.genotypes import join, pack, read_plink
    >>> X = join(pack([[0, 1, 2], [-1, 0, 0]]), [[51.0], [48.0]])
    >>> X.shape
    (2, 4)
    >>> G = join(*(read_plink(f"chromosome{k}") for k in range(1, 23)))  # doctest: +SKIP
    """
    genotypes = [part for part in parts if isinstance(part, Genotypes)]
    if not genotypes:
        raise TypeError("join needs genotypes, as read_plink and pack return them")
    G: Any = _side_by_side(genotypes) if len(genotypes) > 1 else genotypes[0]
    X = G
    for covariates in parts:
        if isinstance(covariates, Genotypes):
            continue
        labels = list(map(str, getattr(covariates, "columns", ())))
        with name_input(covariates, "covariates"):
            table = np.asarray(covariates, np.float64, order="C")
        if table.ndim != 2 or np.isinf(table).any():
            raise ValueError(
                f"covariates must be a table of finite numbers; got an array of shape {table.shape}"
            )
        if labels and hasattr(covariates, "index") and G.sample_ids is not None:
            table = table[_partners(G.sample_ids, covariates.index.tolist())]
        if len(table) != len(G):
            raise ValueError(f"covariates has {len(table)} rows for {len(G)} people")
        names = [*X.names, *labels] if len(X.names) and labels else ()
        X = Beside(X, with_missing(table, np.nan), names)
    _check_unique(X.names, "X would have two columns with the name")
    return X


def _side_by_side(parts: Sequence[Genotypes]) -> Genotypes:
    """Return genotypes of the same people with the variants of all parts."""
    first, sources, chosen = parts[0], list[Any](), []
    for number, one in enumerate(parts):
        are_named = one.sample_ids is not None and first.sample_ids is not None
        named = (one.sample_ids, first.sample_ids) if are_named else ((), ())
        if not np.array_equal(one.people, first.people) or not np.array_equal(*named):
            raise ValueError(
                f"genotypes {number} of join (counted from 0) have other people than the first, or "
                "in another order; write files with plink --keep and --indiv-sort, and take the "
                "same rows of all"
            )
        if one.first_allele != first.first_allele:
            raise ValueError(f"genotypes {number} of join have another count_a1 than the first")
        chosen.append(one.chosen + sum(source.shape[0] for source in sources))
        sources += one.sources
    found = Genotypes(sources, first.people, np.concatenate(chosen), first.first_allele)
    found.sample_ids, found.phenotype = first.sample_ids, first.phenotype
    for name in _OF_VARIANTS:
        values = [getattr(one, name) for one in parts]
        if all(one is not None for one in values):
            setattr(found, name, np.concatenate(values))
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


def _table(path: str, names: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return the columns of a .fam, .bim or .psam file; `names` are those without a header."""
    lines = [line.split() for line in Path(path).read_text().splitlines()]
    are_rows = [not fields or fields[0][0] != "#" for fields in lines]
    start = [*are_rows, True].index(True)
    if start:
        names = [name.lstrip("#") for name in lines[start - 1]]
    for number, fields in enumerate(lines[start:], start + 1):
        if len(fields) != len(names):
            raise ValueError(
                f"{path}: line {number} has {len(fields)} fields instead of {len(names)}"
            )
    if len(lines) == start or not {"IID", "ID"} & {*names}:
        raise ValueError(f"{path} {'has no column IID' if start else 'is empty'}")
    return dict(zip(names, zip(*lines[start:], strict=True), strict=True))


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
