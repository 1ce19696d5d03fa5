"""What README says in figures, taken from those of the measurements.

    python docs/first_page.py

writes it into README, between the marks ``<!-- figures: NAME -->`` and ``<!-- end -->``.
"""

from pathlib import Path
from typing import NamedTuple

from figures import numbers, read

README = Path(__file__).parents[1] / "README.md"


class Large(NamedTuple):
    """A fit of the picture "What fits on two cores"."""

    data: str
    fit: str
    seconds: float
    gibibytes: float
    machine: str


def row_of(table, *start):
    """Return the first row of a table that starts with these words."""
    return next(row for row in table["rows"] if tuple(row[: len(start)]) == start)


def two_cores():
    """Return the fits of the picture."""
    tables = read()
    names = "scale-cells", "mf-large", "l1-genotypes", "mf-clicks"
    tokens, ratings, genotypes, clicks = used = [tables[name] for name in names]
    mapped = row_of(ratings, "mapped files, two threads")
    found = [
        ("997 million tokens", "50 topics, ten sweeps", row_of(tokens, "whole fit")[2:4]),
        ("101 million ratings", "64 components, ten epochs", (mapped[1], mapped[4])),
        ("10 billion genotypes", "Lasso, 50 penalties, one core", genotypes["rows"][0][1:]),
        ("22.5 million clicks", "an item model, a million users", clicks["rows"][0][2:4]),
    ]
    return [
        Large(data, fit, *(numbers(word)[0] for word in words), table["machine"])
        for (data, fit, words), table in zip(found, used, strict=True)
    ]


def spent(seconds):
    """Return seconds, or minutes."""
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def large():
    """Return the picture "What fits on two cores", and what it shows in words."""
    shown = "; ".join(
        f"{one.data} ({one.fit}) in {spent(one.seconds)} and {one.gibibytes:.1f} GiB"
        for one in two_cores()
    )
    return f"![On two cores: {shown}](docs/_static/two_cores.svg)"


def seconds(words):
    """Return the seconds in a cell, or from the least to the most of them, in short."""
    found = [f"{number:.{2 - (number >= 1)}f}" for number in sorted(numbers(words))]
    return " to ".join(sorted({found[0], found[-1]}))


def speed():
    """Return the seconds to the same quality, here and elsewhere."""
    tables = read()
    topics, ratings, lasso = (tables[name] for name in ("lda-quality", "mf-quality", "l1-lasso"))
    text = row_of(topics, "docstrings", "100")
    stars = next(row for row in ratings["rows"] if row[0].startswith("netflix_like: seconds"))
    study = row_of(lasso, "genotypes, 463 × 50,000, 10")
    rows = [
        (
            "100 topics of 12,873 docstrings",
            seconds(text[6]),
            f"tomotopy {seconds(text[2])}",
            machine(topics),
            "bench_lda.py quality --corpora docstrings --topics 100 --samplers auto --seeds 3",
        ),
        (
            "0.9 million ratings, 40 components",
            seconds(stars[3]),
            f"LIBMF {seconds(stars[1])}, cmfrec {seconds(stars[2])}",
            machine(ratings),
            "bench_mf.py quality --data netflix_like",
        ),
        (
            "Lasso, 463 × 50,000 genotypes, α = α_max/10",
            seconds(study[1]),
            f"skglm {seconds(study[3])}, celer {seconds(study[2])}",
            machine(lasso),
            "bench_l1.py lasso --cases genotypes --parts 10",
        ),
    ]
    rows = [(*row[:-1], f"`python benchmarks/{row[-1]}`") for row in rows]
    return markdown(("What", "Here", "Elsewhere", "Machine", "Command"), rows)


def machine(table):
    """Return the processor on which a table was measured."""
    return dict(read()["method-machines"]["rows"]).get(table["machine"], table["machine"])


def quality():
    """Return what is reached on public data, here and elsewhere."""
    tables = read()
    clicks, stars = tables["mf-gowalla"], tables["mf-quality"]
    text = row_of(tables["lda-quality"], "sotu_passages", "1000")
    published = tables["mf-published"]["rows"]
    reached = {row[0]: " and ".join(row[1:3]) for row in [*clicks["rows"], *published]}
    marks = row_of(stars, "insteval: best test RMSE")
    rows = [
        (
            "clicks on Gowalla, the split of LightGCN: recall@20 and NDCG@20",
            "`DistributedSLIM` " + reached["``DistributedSLIM``"],
            f"UltraGCN {reached['UltraGCN']}, LightGCN {reached['LightGCN']}, both published; "
            f"implicit's ALS {reached['ALS of implicit, K = 512']}",
        ),
        (
            "marks of lecturers (InstEval of lme4): test RMSE",
            "`ModelParallelMF` " + marks[3].strip("*"),
            f"cmfrec {marks[2]}, LIBMF {marks[1]}; none published",
        ),
        (
            "State of the Union addresses, 1,000 topics: held-out perplexity",
            "`DistributedLDA` within 1 % of tomotopy's",
            f"tomotopy {int(text[3]):,}; none published for these words",
        ),
        (
            "Lasso and logistic regression: distance from the minimum",
            "at most the gap, which each fit reports",
            "the minimum is the same for all",
        ),
    ]
    return markdown(("Data and measure", "Here", "Elsewhere"), rows)


def markdown(heads, rows):
    """Return a table."""
    lines = [heads, ["---"] * len(heads), *rows]
    found = ["| " + " | ".join(line) + " |" for line in lines]
    found[1] = found[1].replace(" ", "")
    return "\n".join(found)


def filled(text):
    """Return README with the present figures."""
    for make in (large, speed, quality):
        start, end = f"<!-- figures: {make.__name__} -->\n\n", "\n\n<!-- end -->"
        before, marked, rest = text.partition(start)
        if not marked:
            raise ValueError(f"README has no place for the figures of {make.__name__}")
        text = before + start + make() + end + rest.partition(end)[2]
    return text


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
