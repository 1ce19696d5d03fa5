from pathlib import Path

import numpy as np
import pandas as pd

rng = np.random.default_rng(0)
Path("readings").mkdir()
for week in range(8):
    n = 1500
    table = pd.DataFrame(rng.normal(size=(n, 30)), columns=[f"sensor{k:02}" for k in range(30)])
    table["starts"] = rng.poisson(20, n)
    hot = 1.5 * table["sensor03"] - 1.2 * table["sensor11"] + 0.1 * (table["starts"] - 20)
    table["fails"] = np.where(rng.random(n) < 1 / (1 + np.exp(2.5 - hot)), "yes", "no")
    table["repair_cost"] = np.where(table["fails"] == "yes", rng.normal(900, 50, n), 0.0)
    table["firmware"] = 3.0  # never changes
    table["pressure"] = [f"{value:.2f}".replace(".", ",") for value in rng.normal(4.0, 0.3, n)]
    table["sensor03"] = (100 * table["sensor03"] + 500).round(1)
    for name in ("sensor03", "sensor11", "sensor20"):
        table.loc[rng.random(n) < 0.04, name] = -999.0
    if week % 3 == 1:
        table["starts"] = table["starts"].astype(float).where(rng.random(n) > 0.02)
    table.insert(0, "pump", [f"p{k:04}" for k in rng.integers(0, 4000, n)])
    table.insert(1, "week", week)
    pd.concat([table, table.iloc[::50]]).to_parquet(f"readings/week{week}.parquet")
