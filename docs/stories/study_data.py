from pathlib import Path

import numpy as np
import pandas as pd

rng = np.random.default_rng(0)
n, m = 801, 3000
causes = np.array([350, 950, 1600, 2250, 2800])
frequency = rng.uniform(0.05, 0.5, m)
frequency[causes], frequency[9::60] = 0.3, 0.002  # some hardly vary
level, doses = rng.random((2, n)), np.empty((m, n), int)
for j in range(m):  # neighbours are alike, as on a chromosome
    level = np.where(rng.random(level.shape) < 0.12, rng.random(level.shape), level)
    doses[j] = (level < frequency[j]).sum(axis=0)
age, sex = rng.integers(35, 75, n), rng.integers(1, 3, n)
trait = 0.7 * doses[causes].sum(axis=0) + 0.08 * age + 0.8 * sex + rng.normal(size=n)

codes = np.array([3, 2, 0])[doses]  # PLINK's two bits for 0, 1 and 2 copies
codes[rng.random(codes.shape) < 0.01] = 1  # no call
codes[5::200, rng.random(n) < 0.3] = 1  # markers that failed
codes[rng.random(m) < 0.4, 17] = 1  # a sample that failed
four = np.pad(codes, ((0, 0), (0, -n % 4))).reshape(m, -1, 4) << np.array([0, 2, 4, 6])
Path("study.bed").write_bytes(b"\x6c\x1b\x01" + four.sum(axis=2).astype(np.uint8).tobytes())
Path("study.bim").write_text(
    "".join(f"{1 + j // 1000}\trs{j}\t0\t{j % 1000 * 5000}\tA\tG\n" for j in range(m))
)
known = [f"{value:.3f}" if i % 50 else "-9" for i, value in enumerate(trait)]
Path("study.fam").write_text("".join(f"f{i} i{i} 0 0 {sex[i]} {known[i]}\n" for i in range(n)))
table = pd.DataFrame({"IID": [f"i{i}" for i in range(n)], "age": age, "sex": sex}).sample(
    frac=1.0, random_state=0
)
table.loc[table.index[::40], "age"] = -9  # not known, as the form has it
pd.concat([table, table.iloc[:1]]).to_csv("people.csv", index=False)
