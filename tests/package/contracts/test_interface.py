"""The public names and their parameters are those of the list: a change of the interface is seen.

python tests/package/contracts/test_interface.py   # writes the list
"""

import inspect
import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import schmp_estimators

ROOT = Path(__file__).resolve().parents[3]
LIST = Path(__file__).with_name("public_names.txt")
MODULES = ("datasets", "exceptions", "genotypes", "penalised", "ranking", "sampling", "schmp")


def parameters(value):
    """Return the parameters of a callable, with defaults unless these depend on the machine."""
    try:
        found = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return ""
    shown = []
    for one in found:
        default = repr(one.default)
        star = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        has = one.default is not one.empty and not re.search("0x|<", default)
        shown.append(star + one.name + (f"={default}" if has else ""))
    return "(" + ", ".join(shown) + ")"


def interface():
    """Return a line for each public name, and for each public method of an estimator."""
    lines = []
    for path in ("schmp_estimators", *(f"schmp_estimators.{name}" for name in MODULES)):
        module = import_module(path)
        for name in sorted(set(module.__all__) - {"__version__", *MODULES}):
            value = getattr(module, name)
            lines.append(f"{path}.{name}{parameters(value) if callable(value) else ''}")
            if inspect.isclass(value) and path == "schmp_estimators":
                methods = {method for method in dir(value) if method[0] != "_"}
                lines += [
                    f"{path}.{name}.{method}{parameters(getattr(value, method))}"
                    for method in sorted(methods)
                    if callable(getattr(value, method, None))
                    and getattr(getattr(value, method), "__module__", "").startswith(path)
                ]
    return lines


def test_the_interface_is_that_of_the_list():
    assert interface() == LIST.read_text().splitlines(), (
        "if you mean to change what is public, read CONTRIBUTING.md and write the list anew"
    )


def test_versions_and_addresses_are_the_same_everywhere():
    cited = (ROOT / "CITATION.cff").read_text()
    versions = re.findall(r"^ *version: (.*)$", cited, re.MULTILINE)
    assert versions == [schmp_estimators.__version__.partition(".dev")[0]]
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get("urls", {})
    assert not urls or urls["Repository"] in cited


if __name__ == "__main__":
    LIST.write_text("\n".join(interface()) + "\n")
    sys.stdout.write(f"{len(interface())} lines\n")
