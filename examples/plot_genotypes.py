"""
Genotypes, a byte each
======================

Which of half a million genetic variants are associated with a trait?  A genotype is 0, 1 or 2, so
one byte is enough.  `~schmp_estimators.PrioritizedLasso` reads bytes without a copy: 1,000 people
with 500,000 variants take 500 MB, and a fit needs little more.  Sex, age and ancestry influence the
trait, too.  They must be in the model, but without a penalty.  Otherwise variants that are more
frequent in one population would explain a part of their influence.

This page uses 22,000 variants.  ``study(1000, 500_000)`` generates half a million.
"""

import tracemalloc

import matplotlib.pyplot as plt
import numpy as np

from schmp_estimators import PrioritizedLasso

CHROMOSOMES, LINKED, CAUSES = 22, 25, 12
WHOLE = 2  # covariates that are whole numbers, in front of the genotypes: sex and age


def genotypes(n_people, n_variants, rng):
    """Return everybody's shares of three populations, and genotypes behind room for covariates.

    Within a block of linked variants everybody inherits twice from eight founders, whose odds
    depend on ancestry.
    """
    ancestry = rng.dirichlet([0.3, 0.3, 0.3], n_people)
    X = np.zeros((n_people, WHOLE + n_variants), np.int8, order="F")
    for start in range(WHOLE, X.shape[1], LINKED):
        founders = rng.random((8, min(LINKED, X.shape[1] - start))) < rng.uniform(0.05, 0.5)
        odds = np.cumsum(ancestry @ rng.dirichlet(np.full(8, 2.0), 3), axis=1)
        inherited = (rng.random((2, n_people, 1)) > odds[:, :-1]).sum(axis=2)
        X[:, start : start + LINKED] = founders[inherited].sum(axis=0)
    return ancestry, X


def principal_components(X):
    """Return the first two of some 5,000 variants, with deviations of 1."""
    thin = X[:, WHOLE :: max(1, X.shape[1] // 5000)].astype(np.float32)
    thin -= thin.mean(axis=0)
    return np.linalg.eigh(thin @ thin.T)[1][:, -2:] * np.sqrt(len(X))


def study(n_people, n_variants, seed=0):
    """Return X, two principal components, a trait, and which variants are its causes.

    X is int8: sex, age and variants.
    """
    rng = np.random.default_rng(seed)
    ancestry, X = genotypes(n_people, n_variants, rng)
    X[:, 0], X[:, 1] = rng.integers(0, 2, n_people), rng.integers(40, 70, n_people)
    causes = rng.choice(n_variants, min(n_variants, 50 * CAUSES), replace=False)
    causes = causes[X[:, WHOLE + causes].std(axis=0) > 0.4][:CAUSES]  # common ones
    effects = rng.choice([-0.4, 0.4], CAUSES) / X[:, WHOLE + causes].std(axis=0)
    trait = X[:, WHOLE + causes] @ effects + 0.5 * X[:, 0] + 0.05 * X[:, 1]
    trait += ancestry @ [0.0, 2.0, -2.0] + rng.normal(size=n_people)
    return X, principal_components(X), trait, causes


def by_blocks(function, X, size=1000):
    """Apply a function to some columns at a time, as floats: X as a whole is never converted."""
    blocks = [
        function(X[:, start : start + size].astype(np.float32))
        for start in range(0, X.shape[1], size)
    ]
    return np.concatenate(blocks, axis=-1)


def products(vectors, X):
    """Return the products of vectors with all columns."""
    return by_blocks(lambda part: vectors @ part, X)


def without(columns, values):
    """Return what least squares on some columns leaves of values."""
    return values - columns @ np.linalg.lstsq(columns, values, rcond=None)[0]


def deviations_of(columns):
    """Return standard deviations; rare variants count as one of 1 in 200."""
    return np.maximum(columns.std(axis=0), 0.1)


def threshold(X, covariates, trait, n_permutations=100):
    """Return the penalty above which 95 of 100 permuted traits have no variant."""
    left = without(covariates, trait)
    permuted = np.random.default_rng(0).permuted(np.tile(left, (n_permutations, 1)), axis=1)
    permuted = without(covariates, permuted.T).T.astype(np.float32)
    largest = by_blocks(
        lambda part: (np.abs(permuted @ part) / deviations_of(part)).max(axis=1, keepdims=True), X
    )
    return float(np.quantile(largest.max(axis=1), 0.95)) / len(trait)


def fit_beside(X, trait, components, alpha, factors, tol=1e-10):
    """Return a Lasso beside components without penalty, their coefficients, and how many fits."""
    # one piece: of more than 400 million values in the order of columns, several would be copies
    lasso = PrioritizedLasso(alpha, penalty_factors=factors, tol=tol, warm_start=True, n_shards=1)
    components = components - components.mean(axis=0)
    coef, step, least = np.linalg.lstsq(components, trait, rcond=None)[0], 0.0, np.inf
    for number in range(1, 100):
        lasso.fit(X, trait - components @ (coef + step))
        objective = lasso.history_[-1]["objective"]
        if objective > least + 1e-12 * abs(least):  # too far: other variants are in the model there
            step = step / 2
            continue
        coef, least, support = coef + step, objective, np.flatnonzero(lasso.coef_)
        inside = np.column_stack([np.ones(len(trait)), X[:, support]])
        left = (
            trait - components @ coef - inside @ np.append(lasso.intercept_, lasso.coef_[support])
        )
        if np.abs(components.T @ left).max() <= 1e-6 * len(trait) * alpha:
            return lasso, coef, number
        step = np.linalg.solve(components.T @ without(inside, components), components.T @ left)
    raise RuntimeError("the components are not settled: they may depend on each other")


# %%
# Never penalised
# ---------------
# The 22,000 variants of this page can be stored as floats, in one matrix with the covariates.
# ``penalty_factors`` multiplies the penalty of each column.  If the factor is the standard
# deviation of a column, as with ``standardize=True``, the penalty is that of standardised columns.
# Columns with the factor 0 have no penalty.  The penalty α is so strong that no variant is selected
# for 95 of 100 random permutations of the trait.
X, components, trait, causes = study(1000, 22_000)
deviations = by_blocks(deviations_of, X)
covariates = np.column_stack([np.ones(len(X)), X[:, :WHOLE], components])
alpha = threshold(X[:, WHOLE:], covariates, trait)

floats = np.asfortranarray(np.hstack([components, X]))
penalised = np.concatenate([np.ones(2), deviations])
never = np.where(np.arange(floats.shape[1]) < 2 + WHOLE, 0.0, penalised)


def fit(columns, factors, tol=1e-10):
    """Return a fit, the variants in it, and how many of them are linked with no cause."""
    lasso = PrioritizedLasso(alpha, penalty_factors=factors, tol=tol).fit(columns, trait)
    found = np.flatnonzero(lasso.coef_[-(X.shape[1] - WHOLE) :])
    return lasso, found, int((~np.isin(found // LINKED, causes // LINKED)).sum())


_, without_them, n_without = fit(floats[:, 2 + WHOLE :], penalised[2 + WHOLE :])
shrunk, _, n_shrunk = fit(floats, penalised)
free, found, n_free = fit(floats, never)
n_causes = len(set(found // LINKED) & set(causes // LINKED))
print(
    f"Variants linked with no cause: {n_without} if covariates are left out, {n_shrunk} if they "
    "are penalised,"
)
print(
    f"{n_free} of {len(found)} if they are never penalised.  These are linked with {n_causes} of "
    f"{CAUSES} causes."
)
for name, lasso in (("Penalised", shrunk), ("Never penalised", free)):
    sex, age = lasso.coef_[2:4]
    print(f"{name}: sex counts {sex:.2f}, a year of age {age:.3f}; in truth 0.50 and 0.050.")
assert n_free == 0 < n_shrunk < n_without / 10 and n_causes == CAUSES
assert abs(free.coef_[3] - 0.05) < 0.01 < 0.05 - shrunk.coef_[3]

# %%
# Each dot is the association of a single variant with the trait.  In the lower picture, the
# covariates have first been regressed out of the trait.  If all dots were below α, no variant would
# be in the model.  Variants that are inherited together explain the same part of the trait, so the
# model needs few of those above the line.
place = np.arange(X.shape[1] - WHOLE)
chromosome = place * CHROMOSOMES // len(place)
figure, axes = plt.subplots(2, 1, figsize=(9.5, 6), layout="constrained", sharex=True, sharey=True)
panels = [("left out", covariates[:, :1], without_them), ("never penalised", covariates, found)]
for ax, (name, columns, in_model) in zip(axes, panels, strict=True):
    sizes = np.abs(products(without(columns, trait), X[:, WHOLE:])) / (
        len(trait) * deviations[WHOLE:]
    )
    for parity, colour in enumerate(("#2f7ea6", "#9cc3d8")):
        dots = place[chromosome % 2 == parity]
        ax.plot(dots, sizes[dots], ".", color=colour, markersize=2.5)
    ax.axhline(alpha, color="#2b3a42", linestyle="--", linewidth=1, label="α")
    ax.plot(causes, np.full(CAUSES, -0.015), "^", color="#6a9a4b", markersize=6, label="causes")
    ax.plot(in_model, sizes[in_model], "o", color="#c44e52", fillstyle="none", label="in the model")
    ax.set(title=f"Covariates {name}", ylabel="Association")
    ax.grid(axis="x", visible=False)
axes[0].set_ylim(-0.06, 1.08)
axes[0].legend(ncols=3, loc="upper right")
middles = [place[chromosome == number].mean() for number in range(CHROMOSOMES)]
axes[1].set_xticks(middles, [str(number + 1) for number in range(CHROMOSOMES)], fontsize=8)
axes[1].set(xlabel="Variants, by chromosome")
plt.show()

# %%
# In bytes
# --------
# An array has only one dtype.  So float covariates in X would turn the genotypes into floats, which
# are eight times as large.  Sex and age are whole numbers, so they can be columns of the same int8
# array.  Reserve columns for them when you read the genotypes.  If missing genotypes are coded as
# -1, pass ``missing_values=-1``.  They are then replaced by means while X is read, and X stays
# int8.  The principal components are floats and stay outside X.  The function ``fit_beside`` above
# fits their coefficients, and fits the Lasso to the rest of the trait.  While the set of selected
# variants does not change, the solution of the Lasso is linear in these coefficients, so one Newton
# step finds the best coefficients.  A step that is too long is halved.  When the residual is
# orthogonal to the components, the :term:`duality gap` of the last Lasso is that of the whole
# problem.
tracemalloc.start()
beside, of_components, n_fits = fit_beside(X, trait, components, alpha, never[2:])
added = tracemalloc.get_traced_memory()[1]
tracemalloc.stop()
# some variants are alike, so coefficients are not unique, but predictions are
off = np.abs(floats @ (np.append(of_components, beside.coef_) - free.coef_)).max()
print(
    f"{n_fits} fits, certified to {beside.dual_gap_:.0e}, with the predictions of the fit of "
    f"floats to {off:.0e}."
)
print(
    f"X has {X.nbytes / 1e6:.0f} MB, in floats {floats.nbytes / 1e6:.0f} MB; the fits add "
    f"{added / 1e6:.1f} MB."
)
assert off < 1e-6 and beside.dual_gap_ <= 1e-10 * trait.var()
assert added < X.nbytes < floats.nbytes / 7
