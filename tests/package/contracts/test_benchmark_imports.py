"""What benchmarks, examples and pages import of the package is there: nobody runs all of them with every change."""

import ast
import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCRIPTS = sorted(path for folder in ("benchmarks", "docs", "examples") for path in (ROOT / folder).rglob("*.py"))


def test_what_scripts_import_of_the_package_is_there():
    missing = []
    for node in (node for path in SCRIPTS for node in ast.walk(ast.parse(path.read_text()))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "schmp_estimators":
            module = importlib.import_module(node.module)
            names = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            missing += [name for name in names if importlib.util.find_spec(f"{node.module}.{name}") is None]
    assert missing == []
