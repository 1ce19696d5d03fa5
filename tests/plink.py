"""Files of PLINK 1 as its documentation describes them, written bit by bit."""

import numpy as np

#: Bits of a genotype, the higher one first, by copies of the first allele; −1 is missing.
BITS = {2: "00", 1: "10", 0: "11", -1: "01"}


def write_plink(prefix, doses, phenotypes=None, magic=b"\x6c\x1b\x01", first=0):
    """Write genotypes (people, variants) of people i0, i1, … and variants from `first` on."""
    n_people, n_variants = len(doses), len(doses[0])
    packed = bytearray(magic)
    for variant in range(n_variants):
        bits = [BITS[int(person[variant])] for person in doses]
        for start in range(0, n_people, 4):
            packed.append(int("".join(reversed(bits[start : start + 4])), 2))
    prefix.with_suffix(".bed").write_bytes(packed)
    given = ["-9"] * n_people if phenotypes is None else phenotypes
    people = [f"f{i // 2} i{i} 0 0 0 {given[i]}" for i in range(n_people)]
    variants = [
        f"{1 + j % 22}\trs{j}\t0\t{100 * j}\tA\tG" for j in range(first, first + n_variants)
    ]
    for suffix, lines in (".fam", people), (".bim", variants):
        prefix.with_suffix(suffix).write_text("".join(f"{line}\n" for line in lines))
    return prefix


def write_chromosomes(folder, doses, phenotypes=None):
    """Write three files with some of the variants each, and one with all; return the prefixes."""
    parts = np.array_split(np.arange(doses.shape[1]), 3)
    prefixes = [
        write_plink(folder / f"chr{number}", doses[:, part], phenotypes, first=part[0])
        for number, part in enumerate(parts)
    ]
    return prefixes, write_plink(folder / "all", doses, phenotypes)
