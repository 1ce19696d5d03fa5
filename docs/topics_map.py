"""Draw the picture of the first page.

It shows which topics the packages on this machine write about in their docstrings.

    python docs/topics_map.py

Text and topics follow from the versions of the packages, and from nothing else.
"""

from importlib.metadata import version
from pathlib import Path

import numpy as np
from drawing import BLOCKS, INK, SOFT, svg, text
from sklearn.feature_extraction.text import CountVectorizer

from schmp_estimators import DistributedLDA
from schmp_estimators.datasets import load_docstrings

DISTRIBUTIONS = {"sklearn": "scikit-learn"}
PACKAGES = ["numpy", "scipy", "sklearn", "dask", "distributed", "numba"]
#: What every docstring has.
NOISE = [
    "parameters",
    "returns",
    "examples",
    "notes",
    "default",
    "optional",
    "import",
    "none",
    "true",
    "false",
    "int",
]
N_TOPICS, N_SHOWN, N_WORDS, WIDEST = 20, 14, 5, 22.0


def fit():
    """Return the docstrings, the words of each topic, and its share of each package in percent."""
    docstrings = load_docstrings(PACKAGES)
    counter = CountVectorizer(
        stop_words=NOISE, min_df=8, max_df=0.1, token_pattern=r"\b[a-z]{3,}\b"
    )
    counts = counter.fit_transform(docstrings.data)
    lda = DistributedLDA(
        N_TOPICS, doc_topic_prior=0.1, topic_word_prior=0.02, max_iter=100, random_state=0
    )
    theta = lda.fit_transform(counts)
    top = lda.top_words(N_WORDS, feature_names=counter.get_feature_names_out())
    titles = [", ".join(words) for words in top]
    package = np.array(docstrings.target)
    share = np.array(
        [theta[package == p].mean(axis=0) for p in range(len(docstrings.target_names))]
    )
    return docstrings, titles, 100 * share, int(counts.sum())


def draw(docstrings, titles, share, n_tokens):
    """Return the map: a row for each topic, a column for each package, areas for shares."""
    shown = np.argsort(-share.max(axis=0))[:N_SHOWN]
    shown = shown[np.lexsort((-share.max(axis=0)[shown], share.argmax(axis=0)[shown]))]
    left, top, column, row = 384, 92, 74, 34
    width, height = left + column * len(share) + 18, top + row * len(shown) + 48
    body = [text(20, 34, "What the packages write about", 19, INK, "start", "bold")]
    for p, name in enumerate(docstrings.target_names):
        body.append(text(left + column * (p + 0.5), top - 20, name, 14, INK))
    for line, topic in enumerate(shown):
        y = top + row * (line + 0.5)
        body.append(
            f"<path d='M20 {y + row / 2} H{width - 18}' stroke='#e6eaed' stroke-width='1'/>"
        )
        body.append(text(20, y + 5, titles[topic], 14, INK, "start"))
        for p, value in enumerate(share[:, topic]):
            x, strongest = left + column * (p + 0.5), value == share[:, topic].max()
            radius = WIDEST * np.sqrt(value / share.max())
            fill = BLOCKS[0] if strongest else "#a9c9dc"
            body.append(f"<circle cx='{x:g}' cy='{y:g}' r='{radius:.1f}' fill='{fill}'/>")
            if value >= 4:
                body.append(
                    text(
                        f"{x:g}", f"{y + 4:g}", f"{value:.0f}", 12, "#ffffff" if strongest else INK
                    )
                )
    kept = (
        f"{len(docstrings.data):,} docstrings, {n_tokens / 1e6:.2f} million words; "
        f"{N_SHOWN} of {N_TOPICS} topics"
    )
    body.append(
        text(
            20,
            height - 18,
            f"{kept}; percent of each package's text",
            13,
            SOFT,
            "start",
            style="italic",
        )
    )
    return svg(width, height, *body)


def main():
    """Fit, draw, and say what the text was."""
    found = fit()
    path = Path(__file__).parent / "_static" / "topics.svg"
    path.write_text(draw(*found), encoding="utf-8")
    versions = ", ".join(
        f"{name} {version(DISTRIBUTIONS.get(name, name))}" for name in found[0].target_names
    )
    print(f"{path.name}: {versions}")


if __name__ == "__main__":
    main()
