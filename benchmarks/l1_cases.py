"""Data for the L1 benchmarks, from a seed or of installed packages.

Others are read from the folder SCHMP_DATA.
"""

import os
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from scipy.stats import norm

DATA = Path(os.environ.get("SCHMP_DATA", "."))


def genotypes(n_rows=463, n_columns=50_000, n_causal=50, block=50, seed=0):
    """Standardised 0/1/2 genotypes in blocks of linkage, with planted effects.

    The heritability is one half.
    """
    rng = np.random.default_rng(seed)
    frequency = rng.uniform(0.05, 0.5, n_columns)
    counts = np.zeros((n_columns, n_rows), np.int8)
    for _ in range(2):
        noise = rng.normal(size=(n_columns, n_rows))
        for j in range(1, n_columns):
            if j % block:
                noise[j] = 0.9 * noise[j - 1] + np.sqrt(1 - 0.81) * noise[j]
        counts += noise < norm.ppf(frequency)[:, None]
    counts = counts.T
    coef = np.zeros(n_columns)
    coef[rng.choice(n_columns, n_causal, replace=False)] = rng.normal(size=n_causal)
    matrix = counts - counts.mean(axis=0)
    matrix /= np.maximum(matrix.std(axis=0), 1e-12)
    signal = matrix @ coef
    return np.asfortranarray(matrix), signal + signal.std() * rng.normal(size=n_rows), counts


def toeplitz(n_rows=2000, n_columns=10_000, correlation=0.95, n_causal=100, seed=0):
    """Gaussian columns with correlation ρ^|j−k|, and a sparse linear response.

    The signal-to-noise ratio is 3.
    """
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(n_columns, n_rows))
    for j in range(1, n_columns):
        matrix[j] = correlation * matrix[j - 1] + np.sqrt(1 - correlation**2) * matrix[j]
    matrix = matrix.T
    coef = np.zeros(n_columns)
    coef[rng.choice(n_columns, n_causal, replace=False)] = rng.normal(size=n_causal)
    signal = matrix @ coef
    return matrix, signal + signal.std() / 3 * rng.normal(size=n_rows)


def tall(n_rows=500_000, n_columns=50, correlation=0.9, seed=0, order="C"):
    """Many rows of few Gaussian columns with correlation ρ^|j−k|, one in ten with an effect.

    Half of y is noise.
    """
    rng = np.random.default_rng(seed)
    matrix = np.empty((n_rows, n_columns), order=order)
    for j in range(n_columns):
        new = rng.normal(size=n_rows)
        matrix[:, j] = (
            correlation * matrix[:, j - 1] + np.sqrt(1 - correlation**2) * new if j else new
        )
    coef = np.zeros(n_columns)
    coef[rng.choice(n_columns, n_columns // 10, replace=False)] = rng.normal(size=n_columns // 10)
    signal = matrix @ coef
    return matrix, signal + signal.std() * rng.normal(size=n_rows)


def strads(n_rows=50_000, n_columns=100_000, per_column=25, n_causal=1000, seed=0):
    """The synthetic recipe of Lee et al., NIPS 2014, section 5.1.

    Neighbours share 90 % of themselves by chance.
    """
    rng = np.random.default_rng(seed)
    columns, rows, values = [], [], []
    previous_rows, previous_values = (
        rng.choice(n_rows, per_column, replace=False),
        rng.random(per_column),
    )
    for j in range(n_columns):
        if j and rng.random() >= 0.9:
            current_rows, current_values = (
                previous_rows,
                0.9 * previous_values + 0.1 * rng.random(per_column),
            )
        else:
            current_rows, current_values = (
                rng.choice(n_rows, per_column, replace=False),
                rng.random(per_column),
            )
        columns.append(np.full(per_column, j))
        rows.append(current_rows)
        values.append(current_values)
        previous_rows, previous_values = current_rows, current_values
    matrix = sp.csc_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
        shape=(n_rows, n_columns),
    )
    matrix.indices, matrix.indptr = (
        matrix.indices.astype(np.int32),
        matrix.indptr.astype(np.int32),
    )  # for the peers
    coef = np.zeros(n_columns)
    coef[rng.choice(n_columns, n_causal, replace=False)] = rng.normal(size=n_causal)
    signal = matrix @ coef
    return matrix, signal + signal.std() * rng.normal(size=n_rows)


def words(n_rows=2000, n_columns=5000, per_row=65, n_topics=20, seed=0):
    """Word counts of short texts in two classes; labels are −1 and 1.

    The classes differ in the topics that they are about.
    """
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(
        np.full(n_columns, 0.05) * 2.0 / (1.0 + np.arange(n_columns) / 500), size=n_topics
    )
    labels = np.where(np.arange(n_rows) % 2, 1.0, -1.0)
    leaning = np.exp(0.8 * rng.normal(size=n_topics))
    counts = []
    for label in labels:
        mixture = rng.dirichlet(leaning**label)
        counts.append(
            rng.multinomial(round(per_row * 1.5), mixture @ topics / (mixture @ topics).sum())
        )
    return sp.csc_matrix(np.array(counts, float)), labels


def mice():
    """Mouse SNPs, standardised, against body-mass index; constant columns left out."""
    matrix = sp.load_npz(DATA / "mice_snp.npz").toarray().astype(float)
    labels = (DATA / "mice_snp.labels.txt").read_text().split()
    target = np.load(DATA / "mice_snp.y.npy")
    column = next((number for number, label in enumerate(labels) if "bmi" in label.lower()), 0)
    known = np.isfinite(target[:, column])
    matrix, target = matrix[known], target[known, column]
    matrix -= matrix.mean(axis=0)
    deviation = matrix.std(axis=0)
    return np.asfortranarray(
        matrix[:, deviation > 0] / deviation[deviation > 0]
    ), target - target.mean()


def news20():
    """Newsgroup counts, as stored, with labels 0–9 against 10–19."""
    matrix = sp.csc_array(sp.load_npz(DATA / "news20.npz").astype(float))
    return matrix, np.where(np.load(DATA / "news20.y.npy") < 10, -1.0, 1.0)


def docstrings():
    """Word counts of the docstrings of installed packages, of numpy and scipy or not.

    Versions decide the text.
    """
    from common import docstrings as texts

    matrix, package = texts()
    return sp.csc_array(matrix.astype(float)), np.where(
        np.isin(package, ("numpy", "scipy")), -1.0, 1.0
    )
