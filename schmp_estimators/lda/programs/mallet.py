"""The state file of MALLET: a line for each token with its topic."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

#: Lines that are put together in memory at a time.
_LINES = 1 << 16


def write_state(
    file: IO[bytes], tokens: Mapping[str, NDArray[Any]], names: NDArray[Any], alpha: NDArray[np.float64], beta: float
) -> None:
    """Write tokens to a file in the format of MALLET's ``printState``, packed by gzip; blanks in names become "_".

    Parameters
    ----------
    file : binary file
    tokens : mapping
        ``document``, ``word`` and ``topic`` of each token, by documents.
    names : (n_words,)
        Names of the words.
    alpha : (K,) float64
        Document-topic priors.
    beta : float
        Topic-word prior.
    """
    plain = np.array(["_".join(str(name).split()) for name in names.tolist()], object)
    document, word = tokens["document"], tokens["word"]
    position = np.arange(len(document)) - np.searchsorted(document, document)
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        numbers = " ".join(map(repr, alpha.tolist()))
        packed.write(f"#doc source pos typeindex type topic\n#alpha : {numbers} \n#beta : {beta!r}\n".encode())
        for first in range(0, len(document), _LINES):
            some = slice(first, first + _LINES)
            columns = document[some], position[some], word[some], plain[word[some]], tokens["topic"][some]
            rows = zip(*(column.tolist() for column in columns), strict=True)
            packed.write("".join(f"{doc} NA {at} {w} {name} {topic}\n" for doc, at, w, name, topic in rows).encode())
