"""What losses and penalties lack is named before any work, and what is too large for memory."""

from typing import NamedTuple

import dask
import numpy as np
import pytest
import scipy.sparse as sp
from pages import example

import schmp_estimators as se
from schmp_estimators.linear.losses.squared import Squared
from schmp_estimators.linear.penalties.group import Group, group_penalty

SparseGroups = example("plot_your_own_groups").SparseGroups
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 40))
Y = X[:, 0] - X[:, 1] + 0.5 * X[:, 9] + 0.3 * RNG.normal(size=60)
STARTS = np.arange(0, 41, 8)
BLOCKS = ["block_prox", "block_level", "block_value", "columns", "starts", "strengths", "scaled"]


class Lacking(NamedTuple):
    """A penalty in blocks with all but one attribute of `Group`."""

    penalty: Group
    missing: str

    @property
    def in_blocks(self):
        return True

    def __getattr__(self, name):
        if name == self.missing or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.penalty, name)


@pytest.mark.parametrize("missing", BLOCKS)
def test_what_a_penalty_in_blocks_lacks_is_named(missing):
    penalty = Lacking(group_penalty(np.arange(40) // 8, 40), missing)
    for fit in (
        lambda: se.SparseGLM("squared", penalty).fit(X, Y),
        lambda: se.sparse_glm_path(X, Y, "squared", penalty),
    ):
        with pytest.raises(
            TypeError, match=f"needs a penalty that is a named tuple with `{missing}`"
        ):
            fit()


def test_a_loss_that_promises_a_gap_needs_a_dual():
    class Promising:
        certified = True
        derivatives = staticmethod(Squared().derivatives)

    groups = {"groups": np.arange(40) // 8}
    with pytest.raises(TypeError, match="needs a loss with `dual`"):
        se.SparseGLM(Promising(), "group", **groups).fit(X, Y)


def test_coefficients_that_do_not_fit_into_memory_are_refused():
    wide = sp.csc_array((np.ones(3), ([0, 1, 2], [5, 70, 900])), shape=(6, 8_000_000))
    labels = ["a", "b", "c"] * 2
    with (
        dask.config.set({"schmp-estimators.memory-limit": "300 MiB"}),
        pytest.raises(MemoryError, match=r"3 x 8000000 coefficients .* GiB .*memory-limit"),
    ):
        se.SparseGLM("multinomial", alpha=0.1).fit(wide, labels)


def prox(values, step):
    """Return the proximal step of sparse groups with f = 1.5 and τ = 0.4, in plain NumPy."""
    shrunk = np.sign(values) * np.maximum(np.abs(values) - 0.6 * step, 0.0)
    sizes = np.sqrt((shrunk.reshape(-1, 8) ** 2).sum(axis=1))
    kept = np.maximum(0.0, 1.0 - 0.9 * step / np.maximum(sizes, 1e-300))
    return (shrunk.reshape(-1, 8) * kept[:, None]).ravel()


@pytest.mark.slow
@pytest.mark.parametrize(("form", "n_shards"), [(np.asarray, 1), (sp.csc_array, 2)])
def test_sparse_groups_from_outside_reach_the_minimum(form, n_shards):
    penalty = SparseGroups(np.full(5, 1.5), np.arange(40), STARTS, 0.4)
    model = se.SparseGLM("squared", penalty, 0.1, tol=1e-10, n_shards=n_shards).fit(form(X), Y)
    centred, y = X - X.mean(axis=0), Y - Y.mean()
    step, coef = len(Y) / np.linalg.norm(centred, 2) ** 2, np.zeros(40)
    for _ in range(20_000):
        coef = prox(coef + step * centred.T @ (y - centred @ coef) / len(Y), 0.1 * step)
    np.testing.assert_allclose(model.coef_, coef, atol=1e-6)
    assert 0 < np.count_nonzero(coef) < 16 and coef[8:16].any() and not coef[16:].any()
    assert model.dual_gap_ <= 1e-10 * np.mean(y**2)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_ends_of_sparse_groups_are_known_penalties(share):
    penalty = SparseGroups(np.full(5, 1.5), np.arange(40), STARTS, share)
    ours = se.sparse_glm_path(X, Y, "squared", penalty, alphas=4, tol=1e-9)
    factors = {"penalty_factors": np.full(5 if not share else 40, 1.5)}
    known = {"penalty": "group", "groups": np.arange(40) // 8} if not share else {"penalty": "l1"}
    theirs = se.sparse_glm_path(X, Y, **known, **factors, alphas=4, tol=1e-9)
    for one, other in zip(ours[:3], theirs[:3], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
