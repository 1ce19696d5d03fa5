"""
From PLINK files to stable variants
===================================

Which genetic variants are associated with a trait, besides age and sex?  The genotypes are in a
``.bed`` file, with two bits for each person and variant.  The covariates are in a table with
missing values and another order of rows.  Nothing is converted or imputed before the fit:
`~schmp_estimators.genotypes.read_plink` opens the file, and `~schmp_estimators.genotypes.join` adds
the covariates as columns.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from schmp_estimators import PrioritizedLasso, PrioritizedLassoCV, stability_selection
from schmp_estimators.genotypes import join, read_plink

PEOPLE, VARIANTS, CAUSES = 1001, 6000, np.array([700, 1900, 3200, 4500, 5600])


def write_study(prefix, rng):
    """Write PLINK files and a table: haplotypes copy their neighbour with odds of 9 to 1."""
    uniform, frequency = rng.random((2, PEOPLE)), rng.uniform(0.0, 0.5, VARIANTS)
    frequency[CAUSES], frequency[7::50] = 0.3, 0.0  # some variants do not vary
    doses = np.empty((VARIANTS, PEOPLE), int)
    for variant in range(VARIANTS):
        uniform = np.where(rng.random(uniform.shape) < 0.1, rng.random(uniform.shape), uniform)
        doses[variant] = (uniform < frequency[variant]).sum(axis=0)
    age, sex = rng.uniform(40.0, 70.0, PEOPLE), rng.integers(1, 3, PEOPLE)
    trait = 0.6 * doses[CAUSES].sum(axis=0) + 0.1 * age + sex + rng.normal(size=PEOPLE)

    codes = np.array([3, 2, 0])[doses]  # 0, 1 and 2 copies of the first allele
    codes[rng.random(codes.shape) < 0.01] = 1  # no call
    four = np.pad(codes, ((0, 0), (0, -PEOPLE % 4))).reshape(VARIANTS, -1, 4)
    packed = (four << np.array([0, 2, 4, 6])).sum(axis=2).astype(np.uint8)
    prefix.with_suffix(".bed").write_bytes(b"\x6c\x1b\x01" + packed.tobytes())
    variants = [f"{1 + j // 2000} rs{j} 0 {j % 2000 * 1000} A G\n" for j in range(VARIANTS)]
    prefix.with_suffix(".bim").write_text("".join(variants))
    people = [f"f{i} i{i} 0 0 {sex[i]} {trait[i]:.4f}\n" for i in range(PEOPLE)]
    people[5] = "f5 i5 0 0 0 -9\n"  # the trait is not known
    prefix.with_suffix(".fam").write_text("".join(people))
    table = pd.DataFrame({"IID": [f"i{i}" for i in range(PEOPLE)], "age": age, "sex": sex})
    table.loc[::40, "age"] = np.nan
    table.sample(frac=1.0, random_state=0).to_csv(prefix.with_suffix(".csv"), index=False)


# %%
# Read, filter, join
# ------------------
# Rows and columns are selected without a copy.  Here ``known_means`` returns twice the allele
# frequencies.
folder = tempfile.TemporaryDirectory()
prefix = Path(folder.name, "study")
write_study(prefix, np.random.default_rng(0))

G = read_plink(prefix)
G = G[~np.isnan(G.phenotype)]
frequency = G.known_means(np.ones(len(G))) / 2.0
G = G[:, (frequency > 0.01) & (frequency < 0.99)]
frequency = G.known_means(np.ones(len(G))) / 2.0
X, y = join(G, pd.read_csv(prefix.with_suffix(".csv"), index_col="IID")), G.phenotype
size = prefix.with_suffix(".bed").stat().st_size / 1e6
print(f"{G}: {size:.1f} MB on disk, in floats {8 * G.stored / 1e6:.0f} MB")

# %%
# The penalty, and stable variants
# --------------------------------
# Age and sex have no penalty.  The penalty of a variant is multiplied by the standard deviation
# that follows from its frequency.  ``alpha_1se_`` is the penalty of the simplest model that
# predicts about as well as the best one.  Stable variants are selected in most random halves of the
# people.
factors = np.append(np.sqrt(2.0 * frequency * (1.0 - frequency)), [0.0, 0.0])
cv = PrioritizedLassoCV(alphas=20, eps=0.05, cv=5, penalty_factors=factors).fit(X, y)
lasso = PrioritizedLasso(cv.alpha_1se_, penalty_factors=factors)
halves = stability_selection(lasso, X, y, n_halves=20, threshold=0.9, random_state=0)
stable = halves.selected[: G.shape[1]]
selected = np.count_nonzero(cv.coef_1se_[:-2])
print(f"{selected} variants are selected, {stable.sum()} in 9 of 10 halves:")
print(pd.DataFrame({"chromosome": G.chromosomes, "position": G.positions}, G.variant_names)[stable])
print(
    f"A year of age counts {cv.coef_[-2]:.2f}, and sex {cv.coef_[-1]:.2f}; in truth .10 and 1.00."
)
numbers = np.array([int(name[2:]) for name in G.variant_names])
assert np.isin(CAUSES, numbers[stable]).all()
assert (np.abs(numbers[stable][:, None] - CAUSES).min(axis=1) < 20).all()
assert abs(cv.coef_[-2] - 0.1) < 0.02

# %%
share = halves.probabilities[: G.shape[1], 0]
figure, ax = plt.subplots(figsize=(9, 3.4), layout="constrained")
for chromosome in np.unique(G.chromosomes):
    here = G.chromosomes == chromosome
    ax.plot(numbers[here], share[here], ".", markersize=3, label=f"chromosome {chromosome}")
ax.plot(CAUSES, np.full(len(CAUSES), -0.04), "^", color="#6a9a4b", label="causes")
ax.axhline(0.9, color="#2b3a42", linestyle="--", linewidth=1)
ax.set(
    xlabel="Variants, by position",
    ylabel="Share of the halves",
    title="How often a variant is selected",
)
ax.legend(ncols=4, loc="upper center")
plt.show()
folder.cleanup()
