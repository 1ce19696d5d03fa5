"""How the gallery looks: its figures, and the order of its pages."""

import re

import matplotlib as mpl
from cycler import cycler

STYLE = {
    "figure.dpi": 110,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.edgecolor": "#7a8a93",
    "axes.labelcolor": "#2b3a42",
    "axes.prop_cycle": cycler(
        color=["#2f7ea6", "#e08e45", "#6a9a4b", "#a05195", "#2b3a42", "#c44e52", "#8a979e"]
    ),
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6eaed",
    "xtick.color": "#4a5a63",
    "ytick.color": "#4a5a63",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


def apply(gallery_conf, fname):
    """Set the style before an example; sphinx-gallery calls this."""
    mpl.rcdefaults()
    mpl.use("Agg")
    mpl.rcParams.update(STYLE)


#: Sections of the gallery: title, pages in their order, and a pattern for the names of pages that
#: no section lists.
SECTIONS = (
    (
        "What is this text about?",
        (
            "topics",
            "number_of_topics",
            "similar_documents",
            "streaming",
            "text_on_dask",
            "early_stopping",
        ),
        "topic|lda|word|text|document|stream|coherence|seed",
    ),
    (
        "What will they like?",
        ("mf_frame", "mf_clicks"),
        "mf_|rating|recommend|click|similar|implicit|item|user",
    ),
    (
        "Which columns matter?",
        ("plink_files", "genotypes"),
        "path|select|snp|genotype|logistic|columns",
    ),
    (
        "What is the fit doing, and where?",
        ("watch_a_fit", "same_bits", "beyond_memory", "more_workers"),
        "watch|dashboard|cluster|dask|workers|memory|disk|spill|schedule_display",
    ),
    (
        "The papers' figures",
        (
            "convergence",
            "shards",
            "mf_rotation",
            "lasso_schedules",
            "lasso_parallel",
            "lasso_pipeline",
        ),
        "lasso|paper",
    ),
    (
        "How do I write my own?",
        (
            "your_own_loss",
            "your_own_penalty",
            "your_own_storage",
            "your_own_rotation",
            "your_own_svm",
            "schedule_from_costs",
        ),
        "your_own|schedule",
    ),
    ("And more", (), ""),
)
_OPEN = '.. raw:: html\n\n    <div class="sphx-glr-thumbnails">\n\n'
_CLOSE = ".. raw:: html\n\n    </div>\n\n"
_CARD = '.. raw:: html\n\n    <div class="sphx-glr-thumbcontainer"'


def place(name):
    """Return the number of the section of a page, and its place there.

    Listed ones first, then the others by name.
    """
    name = name.removeprefix("plot_").removesuffix(".py")
    for number, (_, listed, _) in enumerate(SECTIONS):
        if name in listed:
            return number, listed.index(name), name
    number = next(n for n, (_, _, pattern) in enumerate(SECTIONS) if re.search(pattern, name))
    return number, len(SECTIONS[number][1]), name


def into_sections(page):
    """Put the cards of the gallery's first page under the titles of their sections."""
    head, _, rest = page.partition(_OPEN)
    cards, _, tail = rest.partition(".. thumbnail-parent-div-close")
    found = {}
    for card in cards.split(_CARD)[1:]:
        found.setdefault(place(re.search(r"/(plot_\w+)`", card)[1])[0], []).append(_CARD + card)
    parts = []
    for number in sorted(found):
        title = SECTIONS[number][0]
        parts.append(f"{title}\n{'-' * len(title)}\n\n{_OPEN}{''.join(found[number])}{_CLOSE}")
    return head + "".join(parts) + tail.partition("</div>")[2]


class Order:
    """The order of the examples: that of the sections."""

    def __init__(self, src_dir):
        self.src_dir = src_dir

    def __call__(self, filename):
        """Return the sort key of a file."""
        return place(filename)

    def __repr__(self):
        return "<gallery order>"
