"""Each operation of a storage, of those from outside and our own, is that of NumPy."""

import pickle
import tempfile
from pathlib import Path

import dask
import numpy as np
import pytest
import scipy.sparse as sp
from pages import example
from plink import write_plink

import schmp_estimators as se
from schmp_estimators.core.values import align
from schmp_estimators.genotypes import pack, read_plink
from schmp_estimators.linear.programs.beside import Beside
from schmp_estimators.linear.programs.input import extent
from schmp_estimators.linear.programs.matrix import PIECE, REQUIRED
from schmp_estimators.linear.programs.missing import with_missing
from schmp_estimators.linear.programs.stored import as_matrix, join
from schmp_estimators.penalised import Storage

Quantised = example("plot_your_own_storage").Quantised
RNG = np.random.default_rng(0)
N, P = PIECE + 300, 70
X = RNG.integers(1, 100, (N, P)) * (RNG.random((N, P)) < 0.6) * 1.0
X[:, 3] = 20.0 + X[:, 4]
VECTOR, WEIGHTS = RNG.normal(size=N), RNG.integers(1, 4, N) * 1.0
CHOSEN = np.array([0, 3, 4, 20, 66])


class Least(Storage):
    """What has to be defined, and nothing else."""

    def __init__(self, X):
        self.X, self.shape, self.dtype = X, X.shape, X.dtype

    def rows(self, chosen):
        return type(self)(self.X[chosen])

    def gradient(self, vector, scope):
        return self.X.T @ vector if scope is None else self.X[:, scope].T @ vector

    def combine(self, columns, factors):
        return self.X[:, columns] @ factors

    def moments(self, weights, vector):
        weights = weights if len(weights) else np.ones(len(self.X))
        return weights @ self.X, weights @ self.X**2, vector @ self.X

    def take_dense(self, columns, rows=None):
        return np.array((self.X if rows is None else self.X[rows])[:, columns].T)


DOSES = np.minimum(X % 4, 2).astype(int) - (X % 11 == 3)  # −1 to 2
DOSES[:, 20] += 2 * (DOSES[:, 20] == -1)  # nothing is missing
FILL = np.where(np.arange(P) == 20, np.nan, RNG.normal(size=P))
TABLE = np.where(DOSES[:, 66:] < 0, np.nan, DOSES[:, 66:])
FILLED = np.where(DOSES < 0, FILL, DOSES)
TABLE_OF_ALL = np.where(DOSES < 0, np.nan, DOSES).astype(np.float32)
HOLES = np.asfortranarray(DOSES.astype(np.int8))


def mapped(first):
    """Return genotypes in a file, copies of the first allele or of the second."""
    with tempfile.TemporaryDirectory() as folder:
        given = read_plink(write_plink(Path(folder, "study"), DOSES), count_a1=first)
        assert (given.to_array() == pack(DOSES).to_array()).any()
        given.sources[0]._stamp = ()  # the file remains mapped
    return given.filled(FILL if first else 2.0 - FILL)


SHIFTS = np.where(np.isin(np.arange(P), [3, 20]), 17.0, 0.0)
FORMS = {
    "least": lambda: Least(X),
    "by rows": lambda: as_matrix(X),
    "by columns": lambda: as_matrix(np.asfortranarray(X)),
    "int8": lambda: as_matrix(X.astype(np.int8)),
    "sparse": lambda: as_matrix(sp.csc_array(X)),
    "packed": lambda: pack(DOSES).filled(FILL),
    "mapped": lambda: mapped(True),
    "second": lambda: mapped(False),
    "holes by rows": lambda: with_missing(TABLE_OF_ALL, np.nan).filled(FILL),
    "holes by columns": lambda: with_missing(HOLES, -1).filled(FILL),
    "sparse holes": lambda: with_missing(sp.csc_array(DOSES), -1).filled(FILL),
    "beside": lambda: Beside(pack(DOSES[:, :66]), with_missing(TABLE, np.nan), ()).filled(FILL),
    "quantised": lambda: Quantised(X.T.astype(np.uint8), np.ones(P), np.zeros(P)),
}


def values_of(form):
    """Return the values of a storage."""
    if form == "second":
        return 2.0 - FILLED
    return FILLED if form in {"beside", "packed", "mapped"} or "holes" in form else X


def all_of(form):
    """Return a storage and its values."""
    return FORMS[form](), values_of(form)


def shifted(form):
    """Return a storage with shifted columns, twice, and its values; implicit zeros stay."""
    X = values_of(form)
    values = X - SHIFTS if "sparse" not in form else np.where(X != 0.0, X - SHIFTS, 0.0)
    return FORMS[form]().shifted(SHIFTS - 5.0 * (SHIFTS > 0)).shifted(5.0 * (SHIFTS > 0)), values


def some(form):
    """Return some rows, in another order, one of them twice."""
    chosen = np.append(RNG.permutation(N)[: PIECE + 100], [5, 5])
    return FORMS[form]().rows(chosen), values_of(form)[chosen]


def few(form):
    """Return some consecutive rows."""
    return FORMS[form]().rows(np.arange(207, 207 + PIECE)), values_of(form)[207 : 207 + PIECE]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("made", [all_of, shifted, some, few])
def test_members_are_those_of_numpy(form, made):
    matrix, values = made(form)
    n = len(values)
    vector, weights, none = VECTOR[:n], WEIGHTS[:n], np.empty(0)

    def same(found, expected):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-9)

    assert (matrix.n_rows, matrix.n_columns) == tuple(matrix.shape) == values.shape
    assert np.dtype(matrix.dtype).kind in "fi"
    assert matrix.is_sparse == ("sparse" in form)
    same(matrix.gradient(vector, None), values.T @ vector)
    same(matrix.gradient(vector, CHOSEN), values[:, CHOSEN].T @ vector)
    same(matrix.combine(CHOSEN, np.arange(5.0)), values[:, CHOSEN] @ np.arange(5.0))
    same(matrix.combine(CHOSEN[:0], none), np.zeros(n))
    for given, by in (none, np.ones(n)), (weights, weights):
        sums, squares, products = matrix.moments(given, vector)
        same(sums, by @ values)
        same(squares, by @ values**2)
        same(products, vector @ values)
    some_rows = np.arange(100, 130)
    taken = matrix.take_dense(CHOSEN)
    same(taken, values[:, CHOSEN].T)
    taken += 1.0  # it is a copy
    same(matrix.take_dense(CHOSEN, some_rows), values[np.ix_(some_rows, CHOSEN)].T)
    same(
        matrix.products(CHOSEN, 2, weights), (values[:, CHOSEN].T * weights) @ values[:, CHOSEN[2:]]
    )
    for columns in CHOSEN, np.arange(P):
        pieces = list(matrix.pieces(columns))
        assert [here.start for here, _ in pieces] == list(range(0, n, PIECE))
        same(np.concatenate([piece for _, piece in pieces]), values[:, columns])
        block = sp.csc_array(tuple(matrix.compressed(columns)), shape=(n, len(columns)))
        same(block.toarray(), values[:, columns])
    same(matrix.to_array(), values)
    has_zeros = ("sparse" in form) & (values[:, CHOSEN] == 0.0).any(axis=0)
    np.testing.assert_array_equal(matrix.complete(CHOSEN), ~has_zeros)
    again = matrix.rows(np.array([7, 1020, 7]))
    same(again.to_array(), values[[7, 1020, 7]])
    same(again.gradient(np.ones(3), CHOSEN), values[[7, 1020, 7]][:, CHOSEN].sum(axis=0))


@pytest.mark.parametrize(
    "made",
    [
        lambda values: with_missing(values, -1),
        lambda values: with_missing(values.T.copy().T, -1),
        lambda values: with_missing(np.where(values < 0, np.nan, values), np.nan),
        lambda values: with_missing(sp.csr_array(values), -1),
        pack,
        lambda values: Beside(pack(values[:, :9]), with_missing(values[:, 9:], -1), ()),
    ],
)
def test_known_values_are_those_of_masked_arrays(made):
    values = DOSES.copy()
    values[:, 30], values[WEIGHTS > 1.0, 31] = -1, -1
    for weights in WEIGHTS, np.where(WEIGHTS > 1.0, WEIGHTS, 0.0):
        expected = np.ma.average(np.ma.masked_equal(values, -1), axis=0, weights=weights)
        found = made(values).known_means(weights)
        np.testing.assert_allclose(found, expected.filled(np.nan), rtol=1e-12)
        again = made(values).filled(np.ones(P)).known_means(weights)
        np.testing.assert_array_equal(again, found)
    if not made(values).is_sparse:
        assert not made(values).rows(np.arange(0)).known_sums(np.empty(0)).any()


@pytest.mark.parametrize("form", FORMS)
def test_identity_tells_values_apart(form):
    def bits(matrix):
        return [np.ascontiguousarray(array).tobytes() for array in matrix.identity()]

    whole = FORMS[form]()
    assert bits(whole) == bits(FORMS[form]())
    order = np.arange(N)
    order[[0, 1]] = order[[1, 0]]
    assert bits(whole) != bits(whole.rows(order))


def test_an_extent_is_what_the_storage_says():
    assert extent(Least(X)) == (N, P, N * P, False, np.float64)
    assert extent(FORMS["sparse"]()) == (N, P, np.count_nonzero(X), True, np.float64)
    assert extent(Least(X.astype(np.float32))).dtype == np.float32


def test_items_are_rows():
    mask = np.arange(N) % 3 == 0
    for chosen in mask, slice(5, 9), np.array([4, 2]), (np.array([4, 2]), ...):
        np.testing.assert_array_equal(Least(X)[chosen].to_array(), X[chosen])


@pytest.mark.parametrize(
    "kinds",
    [("by rows", "by columns"), ("sparse", "by rows"), ("sparse", "sparse"), ("least", "int8")],
)
def test_parts_are_joined(kinds):
    parts = [
        FORMS[kind]().rows(rows)
        for kind, rows in zip(kinds, np.array_split(np.arange(N), 2), strict=True)
    ]
    found = join(parts)
    np.testing.assert_array_equal(found.to_array(), X)
    assert found.is_sparse == ("sparse" in kinds)


class Slotted(Storage):
    __slots__ = ("dtype", "shape", "values")

    def __init__(self, values):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype


@pytest.mark.parametrize("kind", [Slotted, Least])
def test_arrays_are_read_only_and_aligned_after_a_pickle(kind):
    unaligned = np.frombuffer(bytearray(81), np.uint8)[1:].view(np.float64).reshape(5, 2)
    assert not unaligned.flags.aligned
    found = pickle.loads(pickle.dumps(kind(unaligned), 5))
    array = found.values if kind is Slotted else found.X
    np.testing.assert_array_equal(array, np.zeros((5, 2)))
    assert found.shape == (5, 2)
    assert array.flags.aligned
    assert not array.flags.writeable


@pytest.mark.parametrize(
    "form", ["by rows", "by columns", "sparse", "shifted", "holes by rows", "sparse holes"]
)
def test_our_own_forms_can_be_sent(form):
    matrix = FORMS["by rows"]().shifted(SHIFTS) if form == "shifted" else FORMS[form]()
    found = align(pickle.loads(pickle.dumps(matrix)))
    assert type(found) is type(matrix)
    np.testing.assert_array_equal(found.to_array(), matrix.to_array())


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_member_is_named(name):
    members = {key: value for key, value in vars(Least).items() if key in REQUIRED and key != name}
    kind = type("Partial", (Storage,), members)
    storage = kind()
    for key in {"shape", "dtype"} - {name}:
        setattr(storage, key, getattr(X, key))
    fitted = se.PrioritizedLasso(1.0).fit(X, VECTOR)
    said = f"X=Partial does not define {name}; a penalised.Storage has to define shape, dtype, rows"
    for act in (
        lambda: se.PrioritizedLasso().fit(storage, VECTOR),
        lambda: se.SparseLogisticRegressionCV().fit(storage, VECTOR > 0.0),
        lambda: se.sparse_glm_path(storage, VECTOR),
        lambda: fitted.predict(storage),
    ):
        with pytest.raises(TypeError, match=said):
            act()


def test_sizes_are_compared():
    fitted = se.PrioritizedLasso(1.0).fit(Least(X), VECTOR)
    assert fitted.n_features_in_ == P
    with pytest.raises(
        ValueError, match=r"X has 69 features, but PrioritizedLasso is expecting 70"
    ):
        fitted.predict(Least(X[:, 1:]))
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[1324, 1323\]"):
        fitted.fit(Least(X), VECTOR[1:])
    with pytest.raises(ValueError, match=r"0 feature\(s\)"):
        fitted.fit(Least(X[:, :0]), VECTOR)


def test_who_needs_an_array_refuses_a_storage():
    said = (
        "Least is a penalised.Storage: only linear models accept it, as an X in memory; elsewhere"
    )
    delayed = [dask.delayed(Least(X))]
    for act in (
        lambda: se.DistributedLDA().fit(Least(X)),
        lambda: se.PrioritizedLasso().fit(X, Least(X)),
        lambda: se.PrioritizedLasso().fit(delayed, VECTOR),
    ):
        with pytest.raises(TypeError, match=said):
            act()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_named(bad):
    holed, what = X.copy(), "NaN" if np.isnan(bad) else "infinity"
    holed[1100, 5] = bad
    unused = np.where(np.arange(N) == 1100, 0.0, 1.0)
    said = rf"Input X contains {what}.*1 in column 5; replace"
    fitted = se.PrioritizedLasso(0.1).fit(X, X[:, 5])
    for act in (
        lambda: se.PrioritizedLasso(1.0).fit(Least(holed), VECTOR),
        lambda: se.SparseGLM("poisson").fit(Least(holed), WEIGHTS),
        lambda: se.PrioritizedLasso(1.0).fit(Least(holed), VECTOR, sample_weight=unused),
        lambda: se.PrioritizedLassoCV().fit(Least(holed), VECTOR),
        lambda: fitted.predict(Least(holed)),
    ):
        with np.errstate(invalid="ignore"), pytest.raises(ValueError, match=said):
            act()
