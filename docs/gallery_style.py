"""How the figures of the gallery look."""

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
    "axes.prop_cycle": cycler(color=["#2f7ea6", "#e08e45", "#6a9a4b", "#a05195", "#2b3a42", "#c44e52", "#8a979e"]),
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


class Order:
    """The order of the examples: first what it is good for, then how it works."""

    first = (
        *("topics", "number_of_topics", "similar_documents", "streaming", "text_on_dask", "beyond_memory"),
        *("early_stopping", "convergence", "watch_a_fit", "same_bits", "shards"),
        *("mf_rotation", "genotypes", "lasso_pipeline", "lasso_schedules", "lasso_parallel"),
        *("schedule_from_costs", "your_own_rotation", "your_own_svm", "your_own_penalty", "your_own_loss"),
    )

    def __init__(self, src_dir):
        self.src_dir = src_dir

    def __call__(self, filename):
        """Return the sort key of a file; those without a place come last, by name."""
        name = filename.removeprefix("plot_").removesuffix(".py")
        return (self.first.index(name) if name in self.first else len(self.first), name)

    def __repr__(self):
        return "<gallery order>"
