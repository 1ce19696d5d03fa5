"""Formulas as MathML, which browsers draw by themselves: pages need no script and no network."""

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging

logger = logging.getLogger(__name__)

#: Bars keep the height of what stands between them, and no distance to it; signs above a letter stay near it.
MENDED = {
    "<mi>&#x02016;</mi>": '<mo stretchy="false" lspace="0" rspace="0">&#x02016;</mo>',
    "<mo>&#x02016;</mo>": '<mo stretchy="false" lspace="0" rspace="0">&#x02016;</mo>',
    '<mo stretchy="false">&#x0007C;</mo>': '<mo stretchy="false" lspace="0" rspace="0">&#x0007C;</mo>',
    "<mover>": '<mover accent="true">',
}


def to_mathml(node, display):
    """Return a formula as MathML, and warn of commands that came through as they are."""
    found = convert(node.astext().replace("\n", " "), display=display)
    for sign, better in MENDED.items():
        found = found.replace(sign, better)
    if "\\" in found:
        logger.warning("not translated into MathML: %s", node.astext(), location=node)
    return found


def visit_inline(translator, node):
    """Write a formula in the middle of a line."""
    translator.body.append(to_mathml(node, "inline"))
    raise nodes.SkipNode


def visit_block(translator, node):
    """Write a formula on a line of its own, which scrolls where it is wider than the page."""
    translator.body.append(f"<div class='formula'>{to_mathml(node, 'block')}</div>\n")
    raise nodes.SkipNode


def setup(app):
    """Let pages of HTML have this."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
