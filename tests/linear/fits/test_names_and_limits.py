"""Labels are names, and what cannot be read or act is refused with the remedy."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from inert import inert
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectFromModel

import schmp_estimators as se
from schmp_estimators import schmp
from schmp_estimators.penalised import MCP, Huber

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
Y = X @ [1.0, -1.0, 0.5, 0.0] + 0.3 * RNG.normal(size=60)
GROUPED = {"loss": "squared", "penalty": "group", "alpha": 0.3}


def coef(X, **given):
    return se.SparseGLM(**given).fit(X, Y).coef_.tolist()


@pytest.mark.parametrize("names", [["a", "b", "c", "d"], [3, 0, 1, 2], [10, 20, 30, 40]])
def test_labels_are_names_of_columns_whatever_their_type(names):
    """pandas itself brings the values into the order of the columns."""
    frame = pd.DataFrame(X, columns=names)
    factors = pd.Series([2.0, 0.5, 0.0, 3.0], index=names).sample(frac=1.0, random_state=1)
    groups = pd.Series(["v", "u", "v", "w"], index=names).sample(frac=1.0, random_state=2)
    expected = coef(X, alpha=0.05, penalty_factors=factors[names].to_numpy())
    for given in (factors, factors.to_dict()):
        assert coef(frame, alpha=0.05, penalty_factors=given) == expected
    values = frame.to_numpy()  # in the order of a frame, which counts in last bits
    expected = coef(values, groups=groups[names].tolist(), **GROUPED)
    assert expected != coef(values, groups=groups.tolist(), **GROUPED)
    for given in (groups, groups.to_dict(), pl.Series(groups[names].tolist())):
        assert coef(frame, groups=given, **GROUPED) == expected
    members = [[0, 2], [1], [3]]
    if isinstance(names[0], str):
        members = [[names[one] for one in part] for part in members]
    assert coef(frame, groups=dict(zip("vuw", members, strict=True)), **GROUPED) == pytest.approx(
        expected
    )
    model = se.SparseGLMCV("squared", "group", alphas=[0.3], groups=groups).fit(frame, Y)
    assert model.coef_.tolist() == expected


def test_a_table_of_arrow_has_names_as_a_data_frame_has():
    frame = pd.DataFrame(X, columns=[*"abcd"])
    columns = [frame[name].to_numpy() for name in "abcd"]
    one, other = (
        se.PrioritizedLasso(0.05).fit(given, Y) for given in (frame, pa.table(columns, [*"abcd"]))
    )
    assert other.coef_.tolist() == one.coef_.tolist()
    assert other.feature_names_in_.tolist() == [*"abcd"]
    with pytest.raises(ValueError, match="several columns with the name 'a'"):
        se.PrioritizedLasso(0.05).fit(pa.table(columns, [*"aabc"]), Y)


def test_labels_are_names_of_groups_whatever_their_type():
    for groups in ([1, 1, 2, 2], [False, False, True, True], [1.0, 1.0, 2.0, 2.0]):
        for factors in ({2: 0.01, 1: 2.0}, {True: 0.01, False: 2.0}):
            if set(factors) == set(np.unique(groups).tolist()):
                expected = coef(X, groups=groups, penalty_factors=[2.0, 0.01], **GROUPED)
                for given in (factors, pd.Series(factors)):
                    found = coef(X, groups=groups, penalty_factors=given, **GROUPED)
                    assert found == expected


NAMED = pd.DataFrame(X, columns=list("abcd"))
GROUPS = {
    "missing": (["u", "u", None, None], "groups must name"),
    "NaN": ([0.0, 0.0, np.nan, np.nan], "groups must name"),
    "NA": (pd.array([1, 1, None, 2], dtype="Int64"), "groups must name"),
    "fractions": ([0.5, 0.5, 1.5, 1.5], "groups must name"),
    "infinite": ([0.0, 0.0, np.inf, 1.0], "groups must name"),
    "both kinds": ([1, "1", 2, 2], "groups must name"),
    "dates": (pd.date_range("2020", periods=4), "groups must name"),
    "sets": ([{0, 1}, {2, 3}], "groups must name"),
    "a fraction as column": ([[0.9, 1.0], [2, 3]], "groups has the column"),
    "a huge number as column": ([[0, 1], [2, 10**30]], "groups has the column 1000000"),
    "a huge float as column": ({"u": [0, 1], "v": [1e300]}, r"groups has the column 1e\+300"),
    "infinity as column": ([[0, 1], [2, np.inf]], "groups has the column inf"),
    "an unknown column": ([["a", "b"], ["c", "e"]], "groups has the column 'e'"),
    "other labels": (pd.Series("uuvv", index=list("abce")), "groups names columns that X does not"),
    "labels left out": (pd.Series(["u", "u", "v"], index=list("abc")), "groups must name"),
    "a label twice": (pd.Series(["u"] * 5, index=list("abcdd")), "groups names a column more than"),
    "masked": (np.ma.array([0, 0, 1, 1], mask=[1, 0, 0, 0]), "groups has masked entries"),
    "too few": ([0, 1, 1], "groups must put each of the 4 columns"),
}


@pytest.mark.parametrize("name", GROUPS)
def test_groups_that_are_no_names_are_refused(name):
    given, message = GROUPS[name]
    if name == "other labels":
        given = pd.Series(["u", "u", "v", "v"], index=list("abce"))
    with pytest.raises(ValueError, match=message):
        coef(NAMED, groups=given, **GROUPED)
    with pytest.raises(ValueError, match="groups"):
        coef(X, groups=pd.Series([1, 1, 2, 2], index=[3, 2, 1, 0]), **GROUPED)


@pytest.mark.covering
@pytest.mark.parametrize("penalty", ["l1", "elasticnet", "group", "mcp", MCP(1.0, 5.0)])
@pytest.mark.parametrize("target", ["one", "two", "classes", "three classes"])
def test_columns_that_scikit_learn_selects_are_those_with_a_coefficient(penalty, target):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 6))
    y = 3 * X[:, 0] + 0.3 * X[:, 1] + 0.1 * rng.normal(size=90)
    loss, alpha = "squared" if "classes" not in target else "logistic", 0.02
    y = {"one": y, "two": np.column_stack([y, X[:, 2]]), "classes": y > 0}.get(
        target, np.digitize(y, [-1, 1])
    )
    groups = {"groups": [0, 0, 1, 1, 2, 2]} if penalty == "group" else {}
    model = se.SparseGLM(loss, penalty, alpha, tol=1e-3, **groups)
    kept = SelectFromModel(model).fit(X, y).get_support()
    assert kept.tolist() == np.atleast_2d(model.fit(X, y).coef_).any(axis=0).tolist()


def test_columns_of_groups_without_a_penalty_do_not_count():
    model = se.SparseGLM(groups=[1, 0, 1, 0], penalty_factors=[0.0, 1.0], **GROUPED)
    found = se.stability_selection(model, X, Y, n_halves=20, random_state=0)
    count = found.probabilities[[0, 2]].sum()
    assert found.n_selected == pytest.approx(count)
    assert found.expected_false == pytest.approx(count**2 / (0.2 * 2))


@pytest.mark.parametrize("unit", [1e6, 1e8, 1e10])
def test_counts_of_any_size_have_a_gap(unit):
    """In units of counts the Poisson loss, and so alpha, is multiplied."""
    counts = np.random.default_rng(1).poisson(np.exp(0.5 * X[:, 0] + 0.5))
    options = {"loss": "poisson", "tol": 1e-8}
    for factors in (None, [0.0, 1.0, 1.0, 1.0]):
        small = se.SparseGLM(alpha=0.05, penalty_factors=factors, **options).fit(X, counts)
        large = se.SparseGLM(alpha=0.05 * unit, penalty_factors=factors, **options)
        large.fit(X, unit * counts)
        np.testing.assert_allclose(large.coef_, small.coef_, atol=1e-6)
        null = np.mean(counts * np.log(np.maximum(counts, 1e-300) / counts.mean()))
        assert 0.0 <= large.dual_gap_ <= 1e-8 * unit * null


@pytest.mark.slow
def test_huber_whose_model_is_singular_stops_by_name():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 150))
    y = X[:, :3] @ [1, -1, 2] + rng.standard_t(2, size=100)
    model = se.SparseGLM("huber", alpha=1e-3)
    assert model.fit(X, y).n_iter_ < 30
    with pytest.warns(ConvergenceWarning, match="fewer rows than columns.*larger epsilon"):
        assert model.fit(X, 1e8 * y).n_iter_ < 150


@pytest.mark.slow
def test_huber_with_more_rows_than_columns_converges_in_any_unit():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(100, 20))
    y = 1e4 * (X[:, :3] @ [1, -1, 2] + rng.standard_t(2, size=100))
    model = se.SparseGLM("huber", alpha=0.015).fit(X, y)
    assert model.dual_gap_ <= 1e-4 * 1.35 * np.abs(y).mean()


REFUSED = [
    (se.SparseGLM(class_weight="balanced"), "class_weight='balanced' needs a loss for classes"),
    (se.SparseGLM("huber", class_weight={0: 1.0}), "class_weight.* needs a loss for classes"),
    (se.SparseGLMCV("poisson", class_weight="balanced"), "class_weight.* needs a loss for classes"),
    (se.SparseGLM("multinomial", positive=True), "positive=True needs more than two classes"),
    (se.PrioritizedLasso(0.0), "'alpha' parameter.*for no penalty take scikit-learn's LinearRegr"),
    (se.SparseLogisticRegression(np.inf), r"'C' parameter.*LogisticRegression\(C=np.inf\)"),
    (se.PrioritizedLasso(l1_ratio=0), "'l1_ratio' parameter.*scikit-learn's Ridge"),
    (se.PrioritizedLassoCV(eps=1.0), "'eps' parameter.*for one penalty give a list of one"),
    (se.PrioritizedLassoCV(alphas=[0.0, 1.0]), "alphas=.*scikit-learn's LinearRegression"),
    (se.PrioritizedLassoCV(l1_ratio=1e-6), "l1_ratio=1e-06 is below eps=0.001.*alphas as a list"),
    (se.PrioritizedLassoCV(l1_ratio=[1.0, 1e-4]), "l1_ratio=0.0001 is below eps"),
    (se.PrioritizedLasso(penalty_factors=[1, 1, np.inf, 1]), "infinity; leave out each column"),
    (se.PrioritizedLasso(penalty_factors=["1", "1", "2", "1"]), "penalty_factors.*no number: '1'"),
    (se.PrioritizedLassoCV(alphas=["1", "0.5"]), "alphas"),
    (se.PrioritizedLassoCV(l1_ratio=["0.5"]), "l1_ratio.*no number"),
    (se.SparseLogisticRegressionCV(Cs=np.array(["1", "0.5"])), "Cs"),
    (se.SparseLogisticRegression(class_weight={0: "1", 1: "2"}), "class_weight.*no number"),
    (se.SparseGLM(groups=[0, 0, 1, 1], penalty_factors=["1", "2"], **GROUPED), "penalty_factors"),
]


@pytest.mark.parametrize(("model", "message"), REFUSED)
def test_what_cannot_be_read_or_act_is_refused_with_the_remedy(model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(X, (Y > 0).astype(int))


def test_a_weight_that_is_a_text_is_refused():
    with pytest.raises(ValueError, match="sample_weight has an entry that is no number: '1'"):
        se.PrioritizedLasso().fit(X, Y, sample_weight=["1"] * 60)


def test_the_warning_of_a_penalty_without_a_gap_does_not_speak_of_one():
    for schedule, told in (("resolve", False), ("random", True)):
        model = se.SparseGLM(penalty="mcp", alpha=0.01, max_iter=1, tol=0.0, schedule=schedule)
        with pytest.warns(ConvergenceWarning) as found:
            model.set_params(random_state=0).fit(X, Y)
        text = str(found[0].message)
        assert "stationarity_" in text and "duality" not in text and ("n_parallel" in text) is told


#: By the name of a parameter, values that are not its default.
CHANGES = {
    "l1_ratio": [0.3],
    "penalty_factors": [[2.0, 0.5, 1.0, 3.0]],
    "groups": [[0, 0, 1, 1]],
    "fit_intercept": [False],
    "class_weight": ["balanced", {0: 5.0}],
    "positive": [True],
    "penalty": ["mcp", "elasticnet"],
    "alpha": [0.03],
    "C": [0.7],
    "eps": [0.1],
    "alphas": [3],
    "Cs": [3],
    "cv": [3],
    "scoring": ["neg_log_loss"],
}
ALWAYS = {"max_iter": 30, "tol": 1e-5}
FIXED = {"alpha": 0.011, "C": 0.9, "alphas": 5, "Cs": 5, "cv": 2}
SETTINGS = [
    (kind, {"loss": loss, "penalty": penalty, "schedule": schedule})
    for kind in ("SparseGLM", "SparseGLMCV")
    for loss in ("squared", "huber", Huber(2.0), "poisson", "logistic", "multinomial")
    for penalty in ("l1", "elasticnet", "group", "mcp", MCP(1.0, 5.0))
    for schedule in ("resolve", "round_robin")
    if schedule == "resolve" or (loss not in ("multinomial", "poisson") and penalty != "group")
    if loss != "multinomial" or penalty in ("l1", "elasticnet", "group")
    if kind == "SparseGLM" or schedule == "resolve"
]
SETTINGS += [
    (f"{name}{cv}", more)
    for name, grid in (("PrioritizedLasso", "alphas"), ("SparseLogisticRegression", "Cs"))
    for cv in ("", "CV")
    for more in ([{}, {grid: [0.1, 0.5]}] if cv else [{}, {"schedule": schmp.Priority()}])
]
SETTINGS.append(("SparseGLMCV", {"alphas": [0.02, 0.1]}))
LEARNED = ["coef_", "intercept_", "coefs_path_", "mse_path_", "deviance_path_", "scores_"]


def slow_or_not(setting):
    """Slow are folds, objects in place of names, and MCP, which with factors compiles for long."""
    name, given = setting
    is_slow = name.endswith("CV") and given
    is_slow = is_slow or given.get("penalty") in ("mcp", MCP(1.0, 5.0))
    is_slow = is_slow or isinstance(given.get("loss"), Huber)
    return pytest.param(name, given, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.parametrize(("name", "given"), [slow_or_not(one) for one in SETTINGS])
def test_each_parameter_acts_or_is_refused(name, given):
    kind = getattr(se, name)
    known = set(kind._get_param_names())
    given = {one: value for one, value in {**ALWAYS, **given}.items() if one in known}
    fixed = {one: value for one, value in FIXED.items() if one in known}
    if given.get("penalty") == "group":
        given["groups"] = [0, 0, 1, 2]
    classes = "Logistic" in name or given.get("loss") == "logistic"
    y = (Y > 0.4).astype(int) if classes else np.digitize(Y, [-0.8, 1.5]) + 1

    def fit(model):
        model.fit(X + 0.3, y)
        return [np.ravel(getattr(model, one, ())).tolist() for one in LEARNED]

    changes = {one: values for one, values in CHANGES.items() if one in known}
    if given.get("penalty") == "group":
        changes["penalty_factors"] = [[2.0, 0.5, 3.0]]
    found = inert(lambda **more: kind(**{**fixed, **more}), fit, given, changes)
    assert not found


@pytest.mark.parametrize("given", [{}, {"max_correlation": 0.3}])
@pytest.mark.parametrize("name", ["Priority", "Random", "RoundRobin"])
def test_each_parameter_of_a_schedule_acts_or_is_refused(name, given):
    """On as many columns as are drawn from, all correlated."""
    kind = getattr(schmp, name)
    wide = np.random.default_rng(1).normal(size=(50, 12)) + 0.4 * X[:50, :1]

    def fit(schedule):
        model = se.PrioritizedLasso(0.01, schedule=schedule, max_iter=2, tol=0.0, random_state=0)
        model.fit(wide, Y[:50])
        moves = getattr(model, "moves_", ())
        return model.coef_.tolist(), [one.tolist() for one in moves], model.n_iter_

    changes = {
        "n_parallel": [3],
        "max_correlation": [0.5, None],
        "oversample": [1.0],
        "correlation_rows": [5],
        "weight": [np.abs],
        "refresh": [1, None],
        "pipeline_depth": [2],
        "n_schedulers": [2],
        "moved_above": [0.01],
    }
    known = kind._get_param_names()
    usual = {one: value for one, value in kind().get_params().items() if one in changes}
    changes = {
        one: [value for value in values if value != {**usual, **given}[one]]
        for one, values in changes.items()
        if one in known
    }
    assert not inert(lambda **more: kind(**{"n_parallel": 4, **more}), fit, given, changes)
