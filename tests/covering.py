"""Tests of many cases: with every change as few of them as have each value of each parameter.

All others are slow.
"""

from collections import Counter, defaultdict

import pytest


def slow_but(quick, cases):
    """Return the cases of a test, of which those that are not quick run in the slow lane only."""
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in cases]


#: A case on a cluster takes as long as some others.
CLUSTER = 3


def fewest(cases, costs):
    """Return the numbers of some `cases`, sets of values, that have all values of all of them.

    They are few, by greed: next comes a case with the most values that are still missing, of these
    one whose other values have cost the least, so that they take turns.
    """
    missing, chosen, had = set().union(*cases), [], Counter()
    while missing:
        gain = [
            (len(missing & case), -sum(had[value] for value in case), -number)
            for number, case in enumerate(cases)
        ]
        best = -max(gain)[2]
        chosen.append(best)
        missing -= cases[best]
        had.update(dict.fromkeys(cases[best], costs[best]))
    return chosen


def values_of(item):
    """Return what one case of a test is made of; what is parametrized together is one value."""
    together = [mark.args[0] for mark in item.iter_markers("parametrize")]
    names = [
        [name.strip() for name in some.split(",")] if isinstance(some, str) else [*some]
        for some in together
    ]
    params = item.callspec.params
    names += [[name] for name in params if not any(name in some for some in names)]  # of fixtures
    return {(*some, *(id(params[name]) for name in some)) for some in names}


def mark_the_rest_slow(items):
    """Mark cases of `covering` tests whose values occur in other cases as slow."""
    tests = defaultdict(list)
    for item in items:
        if item.get_closest_marker("covering") and not item.get_closest_marker("slow"):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        costs = [CLUSTER if case.get_closest_marker("cluster") else 1 for case in cases]
        needed = fewest([values_of(case) for case in cases], costs)
        for number in set(range(len(cases))).difference(needed):
            cases[number].add_marker("slow")
