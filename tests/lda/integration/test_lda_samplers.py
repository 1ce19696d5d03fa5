"""Samplers that are given as objects, as users write them outside the package."""

import pickle
import sys
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import pytest
from corpora import SMALL, assert_same_bits
from pages import code_on, example
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from schmp_estimators import DistributedLDA
from schmp_estimators.exceptions import CheckpointMismatchError
from schmp_estimators.lda.samplers.frozen import FrozenLDA
from schmp_estimators.lda.samplers.warp import WarpLDA
from schmp_estimators.sampling import DocumentSampler

make = partial(DistributedLDA, 4, max_iter=4, random_state=3)


@dataclass(frozen=True)
class Outside(WarpLDA):
    """A sampler with a parameter of its own, whose kernels are compiled already."""

    note: Any = "none"


class Plain(FrozenLDA):
    """A sampler without parameters."""


def test_an_object_samples_as_its_parameters_say():
    lda = make(sampler=Outside(3)).fit(SMALL)
    assert_same_bits(lda, make(sampler="warp", mh_steps=3).fit(SMALL))
    assert lda.sampler_ == Outside(3)
    assert_same_bits(make(sampler=Plain()).fit(SMALL), make(sampler="frozen").fit(SMALL))


def test_a_fit_leaves_the_object_as_it_was():
    lda = make(sampler=Outside(3))
    before = pickle.dumps(lda.sampler)
    first = clone(lda).fit(SMALL)
    for other in (lda.fit(SMALL), lda.fit(SMALL), pickle.loads(pickle.dumps(lda)).fit(SMALL)):
        assert_same_bits(other, first)
    assert pickle.dumps(lda.sampler) == before
    assert repr(lda.sampler) == "Outside(mh_steps=3, note='none')"


@pytest.mark.slow
def test_clones_and_searches_know_the_parameters_of_a_sampler():
    lda = make(sampler=Outside(2))
    copy = clone(lda).set_params(sampler__mh_steps=1)
    assert (lda.sampler.mh_steps, copy.sampler.mh_steps) == (2, 1)
    search = GridSearchCV(lda, {"sampler__mh_steps": [1, 4]}, cv=2).fit(SMALL)
    assert [one["sampler__mh_steps"] for one in search.cv_results_["params"]] == [1, 4]
    with pytest.raises(ValueError, match=r"steps=3.*Outside\(mh_steps=2.*'mh_steps', 'note'"):
        lda.set_params(sampler__steps=3)


@pytest.mark.parametrize("sampler", [Plain, object(), None, "gibbs"])
def test_what_is_no_sampler_is_refused_before_any_work(sampler):
    message = (
        r"'sampler' parameter.*'warp'.*an instance of 'schmp_estimators.sampling.TopicSam.*Got"
    )
    with pytest.raises(ValueError, match=message):
        make(sampler=sampler).fit("no counts")


def test_an_object_that_does_not_meet_the_contract_is_refused_before_any_work():
    with pytest.raises(TypeError, match=r"abstract class '?DocumentSampler.*kernel"):
        DocumentSampler()

    class Wrong(Plain):
        def schedule(self):
            return []

    with pytest.raises(TypeError, match=r"Wrong.schedule is called as.*\(sweep, n_shards\)"):
        make(sampler=Wrong()).fit("no counts")


def test_proposals_are_a_parameter_of_the_object():
    with pytest.raises(ValueError, match=r"mh_steps=3 is for .* names.*sampler=Outside\(mh_steps"):
        make(sampler=Outside(), mh_steps=3).fit(SMALL)


@pytest.mark.parametrize("other", ["warp", Outside(3), Outside(note="other")])
def test_a_checkpoint_belongs_to_one_sampler(other, tmp_path):
    plain = partial(make, init="uniform")
    kept = partial(plain, checkpoint=tmp_path / "kept.npz", checkpoint_every=1)
    kept(sampler=Outside(), max_iter=2).fit(SMALL)
    with pytest.raises(CheckpointMismatchError, match=r"sampler|mh_steps|note"):
        kept(sampler=other).fit(SMALL)
    assert_same_bits(kept(sampler=Outside()).fit(SMALL), plain(sampler=Outside()).fit(SMALL))


def test_a_sampler_that_cannot_be_pickled_works_here_and_says_why_not_elsewhere(tmp_path):
    lda = make(sampler=Outside(note=Lock()))
    assert_same_bits(lda.fit(SMALL), make(sampler="warp").fit(SMALL))
    with pytest.raises(TypeError, match=r"checkpoint cannot recognise .*lock.*another process"):
        lda.set_params(checkpoint=tmp_path / "kept.npz").fit(SMALL)


@pytest.mark.cluster
def test_a_sampler_that_cannot_be_pickled_is_named_on_a_cluster(client):
    with client.as_current(), pytest.raises(TypeError, match=r"sampler=Outside\(.*pickle"):
        make(sampler=Outside(note=Lock())).fit(SMALL)


# The sampler of the user guide.


@pytest.fixture(scope="module")
def gibbs():
    return example("plot_your_own_sampler")


@pytest.mark.slow
@pytest.mark.cluster
def test_a_sampler_from_outside_runs_everywhere(gibbs, client, tmp_path):
    here = partial(make, sampler=gibbs.Gibbs(), n_shards=2)
    found = here().fit(SMALL)
    assert_same_bits(here(n_jobs=2).fit(SMALL), found)
    assert_same_bits(here(spill=tmp_path).fit(SMALL), found)
    with client.as_current():
        assert_same_bits(here().fit(SMALL), found)
        assert_same_bits(
            here(checkpoint=tmp_path / "kept.npz", max_iter=2).fit(SMALL),
            here(max_iter=2).fit(SMALL),
        )
    assert_same_bits(here(checkpoint=tmp_path / "kept.npz").fit(SMALL), found)


@pytest.mark.slow
def test_the_page_on_samplers(gibbs):
    names = {**vars(gibbs), "X": SMALL, "__name__": gibbs.__name__}
    for block in code_on("user_guide/samplers"):
        exec(block, names)
        sys.modules[gibbs.__name__].__dict__.update(names)
    expected = make(sampler=gibbs.Gibbs(), n_shards=2, max_iter=5, random_state=0).fit(SMALL)
    np.testing.assert_array_equal(
        names["lda"].topic_word_counts_.toarray(), expected.topic_word_counts_.toarray()
    )
