"""Configuration of the documentation.

Build it with ``python -m sphinx -W -b html docs docs/_build/html``.
"""

import os
import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1] / "tests"))

import charts
import diagrams
import gallery_style
import kernel_cache
from docutils import nodes
from math_core import LatexToMathML

from schmp_estimators import __version__

HERE = Path(__file__).parent
#: Addresses of the project, by their names; none before it has any.
URLS = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"].get("urls", {})
#: Turns formulas into MathML, and raises an error for one that it does not understand.
FORMULAS = LatexToMathML()

project = "schmp_estimators"
author = "The schmp_estimators developers"
copyright = f"2026, {author}"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "matplotlib.sphinxext.plot_directive",
    "sphinx_copybutton",
    "myst_parser",
    "api_pages",
    "tables",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery/**/*.py", "gallery/**/*.ipynb"]
templates_path = ["_templates"]
default_role = "py:obj"
suppress_warnings = ["toc.empty_glob", "config.cache"]

# What is said to be in this package must be on a page of the API.
nitpicky = True
nitpick_ignore_regex = [(".*", rf"(?!{project}\b).*")]

# Links into other projects need the network, so they are made on demand only.
if os.environ.get("DOCS_INTERSPHINX"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "scipy": ("https://docs.scipy.org/doc/scipy", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
        "dask": ("https://docs.dask.org/en/stable", None),
        "distributed": ("https://distributed.dask.org/en/stable", None),
    }

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_use_plots = False

plot_formats = ["svg"]
plot_html_show_formats = plot_html_show_source_link = False
plot_rcparams = gallery_style.STYLE
plot_apply_rcparams = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"quickstart|__init__",
    "within_subsection_order": "gallery_style.Order",
    "image_srcset": ["2x"],
    "thumbnail_size": (520, 340),
    "abort_on_example_error": False,
    "only_warn_on_example_error": False,
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,
    "show_signature": False,
    "download_all_examples": False,
    "doc_module": ("schmp_estimators",),
    "backreferences_dir": "gallery/backreferences",
    "reset_modules": ("gallery_style.apply",),
}

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = f"schmp_estimators {version}"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_show_sourcelink = False
html_copy_source = False
#: Pages of the first level, which have no others beside them.
ALONE = (
    "index",
    "architecture",
    "glossary",
    "contributing",
    "notation",
    "changelog",
    "coming_from",
    "faq",
    "citing",
)
html_sidebars = {page: [] for page in ALONE}
html_theme_options = {
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "show_prev_next": True,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": [], "gallery/index": []},
    "footer_start": ["copyright"],
    "footer_end": [],
    "external_links": [{"name": name, "url": url} for name, url in URLS.items()],
    "pygments_light_style": "friendly",
    "pygments_dark_style": "github-dark",
}


def fill(app, docname, source):
    """Write what sources do not have: the sections of the gallery, and the version to cite."""
    if docname == "gallery/index":
        source[0] = gallery_style.into_sections(source[0])
    elif docname == "citing":
        source[0] = source[0].replace("VERSION", version)


def write_formula(translator, node):
    """Write a formula as MathML, which browsers draw without a script from the network."""
    block = isinstance(node, nodes.math_block)
    formula = FORMULAS.convert_with_local_state(node.astext(), displaystyle=block)
    translator.body.append(f'<div class="math">{formula}</div>' if block else formula)
    raise nodes.SkipNode


def skip_aliases(app, what, name, obj, skip, options):
    """Leave the fields of named tuples out, which are among the parameters."""
    return (
        True if (getattr(obj, "__doc__", None) or "").startswith("Alias for field number") else None
    )


def setup(app):
    """Draw the diagrams and charts, and connect what changes sources and docstrings."""
    diagrams.write_all(HERE / "_static")
    charts.write_all(HERE / "_static")
    kernel_cache.compile_once()  # tests may be running
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
    app.connect("source-read", fill)
    app.connect("autodoc-skip-member", skip_aliases)
