"""The fuzzer sees what is wrong, and with a small number of inputs finds nothing."""

import signal
import time
from pathlib import Path

import fuzz
import numpy as np
import pytest
from fuzz_models import require

from schmp_estimators import PrioritizedLasso

#: The words in front of each input that the fuzzer must not let pass, and what it calls them.
RAISES = {
    "broken law": (lambda: require(False, "water is wet"), "either", "wrong", "water is wet"),
    "other numbers": (lambda: np.testing.assert_allclose(1, 2), "either", "wrong", "Not equal"),
    "refusal of what is legal": (lambda: int("X"), "result", "wrong", "refused: ValueError"),
    "acceptance of what is not": (lambda: "right", "error", "wrong", "accepted"),
    "unclear error": (lambda: int("a"), "either", "wrong", "unclear error: ValueError"),
    "error of another kind": (lambda: {}["alpha"], "either", "wrong", "unclear error: KeyError"),
    "clear error": (lambda: np.float64("X"), "error", "clear error", "ValueError"),
    "result": (lambda: "same bits", "result", "same bits", ""),
}


@pytest.mark.parametrize("name", RAISES)
def test_outcomes_are_told_apart(name):
    run, expects, kind, detail = RAISES[name]
    outcome = fuzz.judge(7, fuzz.Input("label", expects, run, PrioritizedLasso()))
    assert (outcome.seed, outcome.label, outcome.kind) == (7, "label", kind)
    assert detail in outcome.detail


@pytest.mark.parametrize(
    ("end", "seeds", "kind"),
    [(signal.raise_signal, [signal.SIGABRT, signal.SIGSEGV], "crash"), (time.sleep, [600, 601], "hang")],
)
def test_crashes_and_hangs_are_named_and_the_next_input_is_tried(tmp_path, monkeypatch, end, seeds, kind):
    monkeypatch.setattr(fuzz, "START", 0.5 if kind == "hang" else 100.0)
    child = fuzz.Child(tmp_path / "log", end)
    for seed in map(int, seeds):
        outcome = child.try_one(seed, 0.0)
        assert (outcome.seed, outcome.label, outcome.kind) == (seed, fuzz.make(seed).label, kind)
    child.close()


@pytest.mark.slow
def test_random_inputs(tmp_path):
    outcomes = list(fuzz.run_many(84, first=10_000, folder=Path(tmp_path)))
    assert len(outcomes) == 84
    assert not [outcome for outcome in outcomes if outcome.kind in fuzz.BAD]
    assert {outcome.kind for outcome in outcomes} == set(fuzz.GOOD)
