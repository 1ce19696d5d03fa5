"""Draw sentences of guides and public docstrings, for somebody who reads them for the first time.

python benchmarks/reading/draw.py SEED COUNT
"""

import random
import re
import sys
from inspect import getdoc, isclass
from pathlib import Path

import schmp_estimators
from schmp_estimators import datasets, penalised, ranking, schmp

# Not prose: directives, code after "::", headings, doctests, and terms or parameters above their
# indented text
SKIPPED = re.compile(
    r"(?m)^( *)(?:\.\. .*|(.*):(?=:):)\n(?:(?:\1 +.*)?\n)*|^.*\n[-=~ ]{3,}$"
    r"|^ *>>>.*\n(?:.+\n)*|^( *)\S.*\n(?=\3 {4}\S)"
)


def sentences(text):
    """Yield the line and the text of each sentence of at least six words."""
    prose = SKIPPED.sub(
        lambda m: (m[2] + ":" if m[2] else "") + "\n" * m[0].count("\n"), text + "\n"
    )
    for paragraph in re.finditer(
        r"(?m)^ *(?:- |\d\. )?(\S.*(?:\n(?! *(?:- |\d\. )) *\S.*)*)", prose
    ):
        for sentence in re.split(r"(?<=[.!?:])(?:  +|\n *| (?=[A-Z]))", paragraph[1]):
            if len(sentence.split()) >= 6 and sentence[-1] in ".!?:":
                yield prose.count("\n", 0, paragraph.start()) + 1, " ".join(sentence.split())


root = Path(schmp_estimators.__file__).parents[1]
texts = {
    str(guide.relative_to(root)): guide.read_text()
    for folder in ("docs", "docs/stories", "docs/user_guide")
    for guide in sorted(root.glob(f"{folder}/*.rst"))
}
owners = [
    (module.__name__, module) for module in (schmp_estimators, schmp, penalised, ranking, datasets)
]
for place, owner in owners:  # grows by the classes of the modules
    texts[place] = getdoc(owner) or ""
    for name in getattr(owner, "__all__", dir(owner)):
        if name[0] != "_" and str(
            getattr(thing := getattr(owner, name), "__module__", "")
        ).startswith("schmp"):
            texts[f"{place}.{name}"] = getdoc(thing) or ""
            owners += [(f"{place}.{name}", thing)] if isclass(thing) else []
found = {
    sentence: f"{place}:{line}"
    for place, text in texts.items()
    for line, sentence in sentences(text)
}
for sentence in random.Random(int(sys.argv[1])).sample(list(found), int(sys.argv[2])):
    print(found[sentence], sentence)
