"""The base of samplers that change the counts token by token.

Blocks of words, with their rows, go round a ring.

Only the topic totals are shared.  Every shard starts a step of the rotation with the true totals,
and does not see what others change in that step (Lee et al., NIPS 2014, supplement, section 1).  So
with several shards, topics depend on how the documents are divided.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.jit import compiled_for, index, inlined, maker
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.schedules.rotation import schedule_rotation
from schmp_estimators.core.stages import At, Stage, changes, each
from schmp_estimators.core.typing import Arguments, Floats, Integers, Named
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import Prior, SeedRows, TokenShard, WordBlock
from schmp_estimators.lda.kernels.priors import alpha_at
from schmp_estimators.lda.programs.learning import Learned
from schmp_estimators.lda.programs.topics import State, SweepModel, TopicSampler


class Cell(NamedTuple):
    """A shard's tokens of the words of one block, with the counts and priors to sample them."""

    #: Number of the block, and of its first word in the layout.
    number: int
    first: int
    shard: TokenShard
    #: Mutated: the rows of the words.
    block: WordBlock
    #: What changes of the shard, mutated: `documents.DocumentState` or `words.WordState`.
    state: Any
    #: (K,) the shard's copy of the topic totals; mutated.
    total: Integers
    #: (K,) document-topic priors.
    alpha: Floats
    #: Topic-word prior, and its sum over the words: where words are seeded, one for each topic,
    #: with its seeds.
    beta: float
    beta_sum: Prior
    seeds: SeedRows | None
    #: Stream of random numbers of the sweep, and how many of them a token may use.
    key: np.uint64
    n_random: int
    #: From `SequentialSampler.extra`.
    extra: Any


@maker
def inverse_totals(cell):
    """Return ``1 / (n_k + V beta)`` for all topics, and the same with one token less."""
    inverse = np.empty(len(cell.total))
    inverse_less = np.empty(len(cell.total))
    for k in range(len(cell.total)):
        inverse[k] = 1.0 / (cell.total[k] + alpha_at(cell.beta_sum, k))
        inverse_less[k] = 1.0 / (cell.total[k] - 1 + alpha_at(cell.beta_sum, k))
    return inverse, inverse_less


@inlined
def move_total(cell, inverse, inverse_less, old, new):
    """Move a token between topics in the totals, and in ``1 / (n_k + V beta)``.

    The latter is for all tokens, and for one less.
    """
    total = cell.total
    total[old] -= 1
    total[new] += 1
    inverse[old] = inverse_less[old]
    inverse_less[old] = 1.0 / (total[old] - 1 + alpha_at(cell.beta_sum, old))
    inverse_less[new] = inverse[new]
    inverse[new] = 1.0 / (total[new] + alpha_at(cell.beta_sum, new))


@inlined
def write_row(cell, place, word, old, new):
    """Store the new topic of a token in the row of its word."""
    shard = cell.shard
    block = cell.block
    tail = word - len(cell.block.heads)
    if tail < 0:
        block.heads[word, old] -= 1
        block.heads[word, new] += 1
    else:
        at = index(cell.first + word)
        rank = shard.word_rank[at] + place - shard.word_ptr[at]
        block.tails[index(block.tail_ptr[index(tail)] + rank)] = new


@inlined
def nothing(*arguments):
    """Do nothing: for samplers without one of the optional functions."""


class Step(NamedTuple):
    """What a shard reports after a step of the rotation."""

    #: (K,) how its counts of each topic have changed in the step.
    change: Integers
    #: Tokens that moved to another topic, perhaps with other numbers.
    moved: Any


class SweepReport(NamedTuple):
    """What a shard reports at the end of a sweep."""

    #: (K,) its counts of each topic.
    topic_total: Integers
    n_tokens: int


class SequentialSampler(TopicSampler[State]):
    """Base of samplers that change the counts token by token.

    What changes of a shard has topics of its tokens, `topic`, how many have each, `total`, and what
    the sampler adds.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, hot_priors,
    hot_sweeps, own_alphas, learn_every, drawn_alphas, seed_totals, begins_seeded, far
        As in `TopicSampler`.
    """

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return the rotation of words, with a barrier after each step, and the sweep's end."""
        words = changes(self.sample_words, order=schedule_rotation(n_shards), synced=True)
        return [words, each(self.end_sweep, merge=self.merge), *self.looking(sweep, n_shards)]

    @staticmethod
    @abstractmethod
    def kernel(cell: Cell) -> Any:
        """Sample the tokens of a cell; return how many moved, perhaps with other numbers."""

    @property
    def n_random(self) -> int:
        """How many random numbers a token may use."""
        return 1

    def extra(self, at: At) -> Arguments:
        """Return what the kernel of this sampler gets beside the other fields of `Cell`."""
        return ()

    def cell(self, at: At, state: State, block: WordBlock) -> Cell:
        """Return the argument of the kernel."""
        beta = self.beta(at)
        first = int(at.shard.block_ptr[at.block])
        rows = block._replace(tail_ptr=freeze(block.tail_ptr))
        return Cell(
            at.block, first, at.shard, rows, state, at.model.topic_total.copy(),
            freeze(self.alphas(at.sweep, at.model)), beta, self.beta_sums(beta),
            self.seeds_of(at.shard), self.key(at), self.n_random, self.extra(at),
        )  # fmt: skip

    def sample_words(self, at: At, state: State, block: WordBlock) -> tuple[State, WordBlock, Step]:
        """Sample the tokens whose words are in the block."""
        cell = self.cell(at, state, block)
        moved = compiled_for(self, type(self).kernel)(cell)
        change = cell.total - at.model.topic_total
        state.total[:] += change
        return state, block, Step(change, moved)

    def end_sweep(self, at: At, state: State) -> State:
        """End the sweep of a shard.

        All that is kept beside the topics must be as `restore` would make it.
        """
        return state

    def report(self, at: At, state: State) -> SweepReport:
        """Return the topic totals."""
        return SweepReport(state.total.copy(), len(state.topic))

    def summed(self, model: SweepModel | None, reports: Sequence[Any]) -> SweepModel:
        """Bring the topic totals up to date, and measure the errors of the shards' copies."""
        if isinstance(reports[0], SweepReport):
            total, n_tokens = tree_sum(reports)
            before = model or SweepModel(total)
            learned = model.learned if model else Learned()
            given = {
                "learned": learned,
                "learned_before": learned,
                "n_tokens": n_tokens,
                "s_error": before.s_error_now,
            }
            return SweepModel(total, before.moved_now, **given)
        assert model is not None  # the run began with reports
        change, moved = tree_sum(reports)
        off = sum(int(np.abs(change - step.change).sum()) for step in reports)
        return model._replace(
            topic_total=model.topic_total + change,
            s_error_now=max(model.s_error_now, off / max(1, len(reports) * model.n_tokens)),
            moved_now=model.moved_now + moved,
        )

    def moves(self, model: SweepModel) -> Named:
        """Return how many tokens moved, and the s-error."""
        return {"moved": model.moved, "s_error": model.s_error}
