"""The directive ``figures``, which shows a table of the measurements with its command.

.. figures:: l1-lasso
"""

import csv
import io

import figures
from sphinx.util.docutils import SphinxDirective


class Figures(SphinxDirective):
    """Show the command, the rows and the machine of a table."""

    required_arguments = 1

    def run(self):
        """Return the nodes."""
        self.env.note_dependency(str(figures.PATH))
        table = figures.read().get(self.arguments[0])
        if table is None:
            raise self.error(f"{figures.PATH} has no table {self.arguments[0]}")
        return self.parse_text_to_nodes(page(table))


def page(table):
    """Return a table as it would be written on a page."""
    lines = []
    if "command" in table:
        lines += [".. code-block:: console", ""]
        lines += [f"   {'' if line[0] == ' ' else '$ '}{line}" for line in table["command"]]
    if "rows" in table:
        rows = io.StringIO()
        csv.writer(rows, lineterminator="\n").writerows([table["heads"], *table["rows"]])
        lines += ["", ".. csv-table::", "   :header-rows: 1"]
        if "widths" in table:
            lines += [f"   :widths: {table['widths']}", "   :class: notation"]
        cells = rows.getvalue().replace("@", "\\@")  # which are no addresses of mail
        lines += ["", *(f"   {row}" for row in cells.splitlines())]
    if said := figures.legend(table):
        lines += ["", ".. container:: legend", "", f"   {said}."]
    return "\n".join([*lines, ""])


def setup(app):
    """Add the directive."""
    app.add_directive("figures", Figures)
    return {"parallel_read_safe": True}
