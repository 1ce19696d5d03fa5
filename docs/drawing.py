"""What the drawings of the documentation share: colours, and a few elements of SVG."""

BLOCKS = ["#2f7ea6", "#e08e45", "#6a9a4b", "#a05195"]
INK, SOFT, PAPER = "#2b3a42", "#7a8a93", "#ffffff"
FONT = "font-family='Helvetica, Arial, sans-serif'"


def svg(width, height, *body):
    """Return a drawing on paper of this size."""
    marker = (
        "<defs><marker id='tip' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='7' "
        "markerHeight='7' orient='auto'><path d='M0 0 L10 5 L0 10 z' "
        f"fill='{SOFT}'/></marker></defs>"
    )
    paper = f"<rect width='{width}' height='{height}' rx='8' fill='{PAPER}'/>"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' {FONT}>"
    return "\n".join([head, marker, paper, *body, "</svg>\n"])


def text(x, y, words, size=15, fill=INK, anchor="middle", weight="normal", style="normal"):
    """Return words at a place."""
    return (
        f"<text x='{x}' y='{y}' font-size='{size}' fill='{fill}' text-anchor='{anchor}' "
        f"font-weight='{weight}' font-style='{style}'>{words}</text>"
    )


def box(x, y, width, height, fill, stroke="none", radius=5, opacity=1.0):
    """Return a rectangle with round corners."""
    return (
        f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='{radius}' fill='{fill}' "
        f"stroke='{stroke}' stroke-width='1.4' fill-opacity='{opacity}'/>"
    )


def arrow(path):
    """Return a line that ends in a tip."""
    return f"<path d='{path}' fill='none' stroke='{SOFT}' stroke-width='2' marker-end='url(#tip)'/>"
