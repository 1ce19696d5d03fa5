"""What all programs for topic models share.

First topics, word blocks, priors and the joint log-likelihood.
"""

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, cast

import numpy as np

from schmp_estimators.core.program import Program
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.stages import At, Stage, observes
from schmp_estimators.core.typing import (
    AnyIntegers,
    AnySigned,
    Array,
    FloatPair,
    Floats,
    Function,
    Integers,
    IntPair,
    Named,
)
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import (
    Prior,
    SeedRows,
    Stream,
    TokenShard,
    TopicRows,
    WordBlock,
    words_of_places,
)
from schmp_estimators.lda.data.counts import count_values
from schmp_estimators.lda.data.shards import Layout, cut_jobs
from schmp_estimators.lda.data.topic_rows import (
    WordPart,
    WordParts,
    combine_parts,
    harvest_rows,
    make_parts,
    rows_of_lists,
    rows_of_tokens,
)
from schmp_estimators.lda.kernels import likelihood
from schmp_estimators.lda.kernels.likelihood import (
    TopicCounts,
    count_cells,
    merge_counts,
    topic_counts,
)
from schmp_estimators.lda.kernels.priors import draw_of_seeds
from schmp_estimators.lda.kernels.tokens import draw_known_topics
from schmp_estimators.lda.programs import learning
from schmp_estimators.lda.programs import seeds as seeding
from schmp_estimators.lda.programs.learning import Learned

#: A job has at least this many tokens, and a shard at most this many jobs in a pass.
MIN_JOB, MAX_JOBS = 1 << 17, 16
#: What a record calls the joint log-likelihood and its parts.
LIKELIHOODS = ("log_likelihood", "document_log_likelihood", "word_log_likelihood")

#: What changes of a shard: topics of its tokens, and what follows from these.
State = TypeVar("State", bound=Any)


def topic_dtype(n_components: int) -> type[np.integer]:
    """Return the dtype of topic numbers.

    It has as few bits as suffice, because kernels wait for memory.
    """
    if n_components <= 1 << 8:
        return np.uint8
    return np.int16 if n_components < 1 << 15 else np.int32


def topic_bytes(n_components: int) -> int:
    """Return the size of a topic number."""
    return np.dtype(topic_dtype(n_components)).itemsize


class SweepModel(NamedTuple):
    """The model of a sweep, which every shard reads."""

    #: (K,) counts of each topic.
    topic_total: Integers
    #: Tokens that moved to another topic in the last sweep, or in each pass, or with other numbers.
    moved: Any = 0
    #: The joint log-likelihood and its parts, if it has just been measured.
    likelihood: tuple[float, ...] = ()
    #: Priors that have been learned, if there are, and those of the last sweep.
    learned: Learned = Learned()
    learned_before: Learned = Learned()
    # Where shards change counts token by token: see `programs.sequential`.
    n_tokens: int = 0
    #: The largest error of the shards' copies of the totals in a step of the last sweep, for each
    #: shard and token.
    s_error: float = 0.0
    #: The same in the present sweep so far, and the tokens that moved in it.
    s_error_now: float = 0.0
    moved_now: Any = 0


class Measured(NamedTuple):
    """The counts of a shard on which learned priors and the joint log-likelihood depend."""

    #: Of topics in its documents, and in those with a single token.
    documents: TopicCounts
    singles: TopicCounts
    #: Of the lengths of documents, as if all their tokens had topic 0.
    lengths: TopicCounts
    #: Of topics in the words of a block, or in its own words; nothing if only document-topic priors
    #: are learned.
    words: TopicCounts
    #: Of seeded words among these words.
    seeds: seeding.SeedCounts
    #: Number of the sweep.
    sweep: int


@dataclass(frozen=True, kw_only=True)
class TopicSampler(Program[State, WordBlock, SweepModel, Any]):
    """Base of samplers for latent Dirichlet allocation.

    A sampler is a :term:`program`.  The fields that a subclass adds, as a frozen dataclass, are the
    parameters of the sampler, for `sklearn.base.clone` and searches, too.  A fit sets these fields:

    Parameters
    ----------
    n_components : int
        Number of topics K.
    n_words : int
        Number of words V.
    doc_topic_prior, topic_word_prior : float
        Alpha, or the mean of `own_alphas`, and beta.
    seed : int
        Seed of all random numbers.
    evaluate_every : int
        Number of sweeps between two evaluations of the joint log-likelihood; 0 for none.
    hot_priors : tuple of two floats
        Alpha and beta of the first `hot_sweeps` sweeps, if they are larger than `doc_topic_prior`
        and `topic_word_prior`.  With larger priors, documents and words sooner leave the few topics
        that they began with by chance.  So the same held-out perplexity is reached in fewer sweeps.
    hot_sweeps : int
        Number of sweeps with `hot_priors`.
    own_alphas : (K,) float64, optional
        Alpha of every topic, if topics differ; `hot_priors` scale them to a larger mean.
    learn_every : tuple of two ints
        Numbers of sweeps between two updates of `own_alphas`, and of `topic_word_prior`, which
        begin after `hot_sweeps`; 0 for never.
    drawn_alphas : (K,) float64, optional
        In a fit that continues from a checkpoint: the prior with which pending proposals were
        drawn.
    seed_totals : (K,) float64, optional
        Imaginary tokens of each topic, from seed words, if any.  Those of each word add to
        `topic_word_prior` (`TokenShard.seeds`).
    begins_seeded : bool
        Whether the first topics of seeded words are drawn from their seeds.
    far : bool
        Whether shards are in several processes, so that messages cost time.
    """

    #: Where users find it.
    __module__ = "schmp_estimators.sampling"

    n_components: int = field(default=0, repr=False)
    n_words: int = field(default=0, repr=False)
    doc_topic_prior: float = field(default=0.0, repr=False)
    topic_word_prior: float = field(default=0.0, repr=False)
    seed: int = field(default=0, repr=False)
    hot_priors: FloatPair = field(default=(0.0, 0.0), repr=False)
    evaluate_every: int = field(default=0, repr=False)
    # What is not compared: a fit that goes on from a checkpoint may have another value, or
    # `prior_identity` or the fit has it.
    hot_sweeps: int = field(default=0, repr=False, compare=False)
    own_alphas: Floats | None = field(default=None, repr=False, compare=False)
    learn_every: IntPair = field(default=(0, 0), repr=False, compare=False)
    drawn_alphas: Floats | None = field(default=None, repr=False, compare=False)
    seed_totals: Floats | None = field(default=None, repr=False, compare=False)
    begins_seeded: bool = field(default=False, repr=False, compare=False)
    far: bool = field(default=False, repr=False, compare=False)

    name: ClassVar[str] = "lda"
    saves_blocks: ClassVar[bool] = False
    #: Whether topics do not depend on how documents are divided among shards.  Such a program
    #: divides the work of a shard among threads, so that a process needs only one shard.
    partition_invariant: ClassVar[bool] = False
    #: Whether blocks of words go round a ring of shards.
    rotates: ClassVar[bool] = True
    #: Whether a fit with ``init="auto"`` starts with larger priors.
    begins_tempered: ClassVar[bool] = False
    #: Whether EM steps follow a start from passages: see `data.passages`.
    weighs_passages: ClassVar[bool] = False

    def get_params(self, deep: bool = True) -> Named:
        """Return the parameters of the sampler, without those of the fit."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.repr}

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the sampler, as scikit-learn's searches do."""
        for name, value in params.items():
            if name not in self.get_params():
                raise ValueError(
                    f"{name}={value!r}, but {self!r} has only {[*self.get_params()]} as parameters"
                )
            object.__setattr__(self, name, value)
        return self

    def key(self, at: At, stream: int = 0) -> np.uint64:
        """Return a stream of random numbers of a sweep, of which there are two, 0 and 1."""
        return stream_key(self.seed, at.sweep, stream)

    def takes(self, mh_steps: int | str, size: int) -> bool:
        """Return whether a sampler given by its name makes other than 2 proposals for a token."""
        return False

    def by_word(self, at: At, state: State) -> Array:
        """Return the topics of a shard's tokens in word-major order."""
        return np.asarray(state.topic)

    def merge(self, report: Any, other: Any) -> Any:
        """Add up the reports of two shards at the end of a sweep."""
        return tree_sum((report, other))

    def summed(self, model: SweepModel | None, reports: Sequence[Any]) -> SweepModel:
        """Return the model that follows from the reports of all shards on their topics."""
        raise NotImplementedError

    def aggregate(self, model: SweepModel | None, reports: Sequence[Any]) -> SweepModel:
        """Bring the model up to date, by reports on topics or by measured counts."""
        if isinstance(reports[0], Measured):
            return self.with_measured(cast("SweepModel", model), reports)
        return self.summed(model, reports)

    @abstractmethod
    def moves(self, model: SweepModel) -> Named:
        """Return the entries of a record about the tokens that moved."""

    def priors(self, sweep: int, model: SweepModel | None) -> FloatPair:
        """Return the document-topic prior and the topic-word prior of a sweep.

        If each topic has a document-topic prior of its own, the mean is returned.

        `model` is ``at.model``, which has a learned topic-word prior; learned document-topic priors
        are in `alphas`.  Before the first sweep they are those of the first.
        """
        hot = self.hot_priors if max(0, sweep) < self.hot_sweeps else (0.0, 0.0)
        learned = None if model is None else model.learned.beta
        beta = max(self.topic_word_prior, hot[1]) if learned is None else learned
        return max(self.doc_topic_prior, hot[0]), beta

    def beta(self, at: At) -> float:
        """Return the prior of words in a sweep."""
        return self.priors(at.sweep, at.model)[1]

    def alphas(self, sweep: int, model: SweepModel | None) -> Floats:
        """Return the document-topic prior of every topic in a sweep.

        `model`, ``at.model``, has learned ones.
        """
        if model is not None and model.learned.alphas is not None:
            return model.learned.alphas
        mean = self.priors(sweep, None)[0]
        if self.own_alphas is None:
            return np.full(self.n_components, mean)
        return self.own_alphas * (mean / self.doc_topic_prior)

    def alphas_before(self, at: At) -> Floats:
        """Return the document-topic prior that pending proposals were drawn with.

        With it `restore` draws them again.
        """
        found = None if at.model is None else at.model.learned_before.alphas
        if found is None:
            found = self.alphas(at.sweep, None) if self.drawn_alphas is None else self.drawn_alphas
        return found

    def beta_sums(self, beta: float) -> Prior:
        """Return the sum of a topic-word prior over all words.

        If words are seeded, one sum for each topic.
        """
        beta_sum = self.n_words * beta
        return beta_sum if self.seed_totals is None else freeze(beta_sum + self.seed_totals)

    def seeds_of(
        self, shard: TokenShard, words: AnyIntegers | slice = slice(None)
    ) -> SeedRows | None:
        """Return the seeds of words in a shard's layout, by default of all, if there are any."""
        if self.seed_totals is None:
            return None
        return freeze(shard.seeds._replace(number=shard.seeds.number[words]))

    def prior_identity(self) -> Named:
        """Return what identifies the priors beside the parameters that are shown."""
        found = Named()
        if self.learn_every[1]:
            found["topic_word_prior"] = f"learned every {self.learn_every[1]} sweeps"
        if self.learn_every[0]:
            found["doc_topic_priors"] = f"learned every {self.learn_every[0]} sweeps"
        elif self.own_alphas is not None:
            found["doc_topic_priors"] = hashlib.sha256(
                np.ascontiguousarray(self.own_alphas).tobytes()
            ).hexdigest()
        return found

    def state_bytes(self) -> int:
        """Return how many bytes of a shard's state there are for each token."""
        return 6 * topic_bytes(self.n_components)

    def row_bytes(self) -> int:
        """Return how many bytes a shard needs for each of its words.

        `state_bytes` for each token come on top.
        """
        return 0

    def count_local_words(self, word_totals: Integers, layout: Layout) -> Integers:
        """Return how many words of each block are sampled locally.

        They are all, if no tokens are exchanged.
        """
        return np.diff(layout.block_ptr)

    def init(self, at: At) -> tuple[State, Mapping[int, Any]]:
        """Return the state with the first topics of tokens.

        They are uniform, if words do not restrict them.
        """
        topics = np.empty(len(at.shard.place), topic_dtype(self.n_components))
        shard = at.shard
        if len(shard.first.ptr) > 1:
            of_words = (words_of_places(shard), *shard.first)
            key = stream_key(self.seed, 0, Stream.CHOICES)
            draw_known_topics(
                shard.place,
                shard.doc_ptr,
                *of_words,
                shard.first_token,
                key,
                self.n_components,
                topics,
            )
        else:
            seeding.draw_uniform_topics(
                shard.first_token, stream_key(self.seed, 0, Stream.FIRST), self.n_components, topics
            )
        if self.begins_seeded:
            given = words_of_places(shard), shard.place, shard.first_token
            draw_of_seeds(
                freeze(shard.seeds), *given, stream_key(self.seed, 0, Stream.SEEDS), topics
            )
        return self.restore(at, topics)

    def following(self, history: Sequence[Named]) -> Self:
        """Return the program of a run that goes on after these records, at least one."""
        return self

    def begun(self, at: At, saved: Array) -> tuple[Array, Array, Integers]:
        """Return saved topics in document order and word-major order, and tokens of topics."""
        topic = saved.copy()
        by_word = np.empty_like(saved)
        by_word[at.shard.place] = topic
        return topic, by_word, count_values(topic, self.n_components)

    def looking(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return the stages at the end of a sweep that change no topic."""
        of_documents, of_words = self.learns(sweep)
        if of_words or self.measures(sweep):
            return [self.measuring(n_shards)]
        return [observes(self.measured, merge=self.merge_measured)] if of_documents else []

    def learns(self, sweep: int) -> list[bool]:
        """Return whether document-topic and topic-word priors are learned after this sweep."""
        return [
            every > 0 and sweep >= self.hot_sweeps and (sweep + 1) % every == 0
            for every in self.learn_every
        ]

    def measuring(self, n_shards: int) -> Stage:
        """Return the stage that measures documents and words."""
        order = [range(n_blocks)] if (n_blocks := self.n_blocks(n_shards)) else None
        return observes(self.measure, order=order, merge=self.merge_measured)

    def measures(self, sweep: int) -> bool:
        """Return whether the joint log-likelihood is wanted after this sweep."""
        return self.evaluate_every > 0 and (sweep + 1) % self.evaluate_every == 0

    def measure(self, at: At, state: State, block: WordBlock | None = None) -> Measured:
        """Return a shard's counts for the joint log-likelihood, and a block's if there is one."""
        if block is not None:
            return self.measured(at, state, [(at.shard, block, int(at.shard.block_ptr[at.block]))])
        topic = freeze(np.ascontiguousarray(self.by_word(at, state)))
        own = rows_of_tokens(at.shard.word_ptr, topic, self.n_components)
        return self.measured(at, state, [(at.shard, own, 0)])

    def measured(
        self, at: At, state: State, some: Sequence[tuple[TokenShard, WordBlock, int]] = ()
    ) -> Measured:
        """Return the counts to learn document-topic priors from, of a shard and of some blocks.

        Each block comes with a shard that knows its words, and with the number of its first word
        there.
        """
        shard = at.shard
        topic = freeze(self.by_word(at, state))
        lengths = np.diff(at.shard.doc_ptr)
        documents = topic_counts(shard.doc_ptr, shard.place, topic, self.n_components)
        of_singles = topic[shard.place[shard.doc_ptr[:-1][lengths == 1]]]
        words = merge_counts(
            [learning.measure_block(block, self.n_components) for _, block, _ in some]
        )
        counted = documents, count_cells(of_singles, 1), count_cells(0, lengths[lengths > 0]), words
        seeded = []
        if self.seed_totals is not None:
            seeded = [
                seeding.count_seeds(one.seeds, block, first, self.n_components)
                for one, block, first in some
            ]
        return Measured(*counted, seeding.chain_seeds(seeded), at.sweep)

    def merge_measured(self, one: Measured, other: Measured) -> Measured:
        """Return the counts of two shards as those of one."""
        return _together([one, other])

    def with_measured(self, model: SweepModel, measured: Sequence[Measured]) -> SweepModel:
        """Return the model with learned priors and joint log-likelihood, where it is time."""
        documents, singles, lengths, words, seeded, sweep = _together(measured)
        of_documents, of_words = self.learns(sweep)
        before = model.learned_before
        learned = model.learned
        if of_documents:
            alphas = self.alphas(sweep, model)
            before = before._replace(alphas=alphas)
            learned = learned._replace(
                alphas=learning.learn_alphas(alphas, documents, singles, lengths)
            )
        if of_words:
            cells = (
                learning.word_cells(words, seeded),
                learning.topic_cells(model.topic_total, self.seed_totals),
            )
            beta = self.priors(sweep, model)[1]
            before = before._replace(beta=beta)
            learned = learned._replace(beta=learning.learn_beta(beta, self.n_words, *cells))
        model = model._replace(learned_before=before, learned=learned)
        if not self.measures(sweep):
            return model
        # In a tempered start, too, the likelihood is that under the priors that the user asked for.
        asked: Prior = self.doc_topic_prior if self.own_alphas is None else self.own_alphas
        alpha = asked if learned.alphas is None else learned.alphas
        beta = self.topic_word_prior if learned.beta is None else learned.beta
        document = likelihood.document_log_likelihood(documents, lengths, alpha, self.n_components)
        word = likelihood.word_log_likelihood(words, model.topic_total, beta, self.n_words)
        if self.seed_totals is not None:
            word = seeding.seeded_word_log_likelihood(
                word, self.seed_totals, seeded, model.topic_total, beta, self.n_words
            )
        return model._replace(likelihood=(document + word, document, word))

    def record(self, sweep: int, model: SweepModel) -> Named:
        """Return how many tokens moved, under which priors, and the joint log-likelihood.

        The latter is there if it was measured.
        """
        alpha, beta = self.priors(sweep, None)
        before = model.learned_before
        if before.alphas is not None:
            alpha = learning.mean_alpha(before.alphas)
        beta = beta if before.beta is None else before.beta
        named = {"doc_topic_prior": alpha, "topic_word_prior": beta}
        return {
            **self.moves(model),
            **named,
            **dict(zip(LIKELIHOODS, model.likelihood, strict=False)),
        }

    def combine(self, index: int, parts: Sequence[WordPart]) -> WordBlock:
        """Return block `index`, made from the parts of all shards."""
        return combine_parts(parts, self.n_components)

    def parts(self, at: At, state: State) -> WordParts:
        """Return the parts of the shard for all blocks."""
        return make_parts(at.shard, self.by_word(at, state), self.n_components)

    def save(self, at: At, state: State) -> AnySigned:
        """Return the topics in document order, from which all else follows."""
        return np.asarray(self.by_word(at, state)[at.shard.place])

    def harvest_block(self, block: WordBlock) -> TopicRows:
        """Return the word rows of a block."""
        return harvest_rows(block, self.n_components)


class FrozenCountsSampler(TopicSampler[State]):
    """Base of samplers whose tokens all read counts of the beginning of a sweep, or of a pass.

    Their topics do not depend on how documents are divided.  The state of a shard has `totals`, the
    tokens of each topic, and `moved`, how many tokens changed their topics in the last sweep or in
    its passes.  Parameters are those of `TopicSampler`.
    """

    partition_invariant: ClassVar[bool] = True
    begins_tempered: ClassVar[bool] = True

    def jobs(self, ptr: Integers) -> list[IntPair]:
        """Cut documents or words with these offsets into jobs for several threads.

        A job is worth the O(K) that it costs.
        """
        return cut_jobs(ptr, max(MIN_JOB, 4 * self.n_components), MAX_JOBS)

    def over(self, at: At, ptr: Integers, kernel: Function) -> tuple[Integers, int]:
        """Call ``kernel(first, last, totals)`` for jobs of documents or words with these offsets.

        It adds the topics of their tokens to the totals (K,), and returns how many moved; both sums
        are returned.
        """

        def work(job: IntPair) -> tuple[Integers, int]:
            totals = np.zeros(self.n_components, np.int64)
            return totals, kernel(*job, totals)

        totals, moved = zip(*at.each(work, self.jobs(ptr)), strict=True)
        return np.sum(totals, axis=0), sum(moved)

    def report(self, at: At, state: State) -> tuple[Integers, Any]:
        """Return the tokens of each topic, and how many moved, perhaps in each pass."""
        return state.totals, state.moved

    def harvest(self, at: At, state: State) -> TopicRows | None:
        """Return the word rows in layout order, if there is one shard."""
        if at.n_shards > 1:
            return None
        return rows_of_lists(at.shard.word_ptr, self.by_word(at, state), self.n_components)

    def summed(self, model: SweepModel | None, reports: Sequence[Any]) -> SweepModel:
        """Add up the topic totals, which all tokens of the next sweep read."""
        total, moved = tree_sum(reports)
        learned = model.learned if model else Learned()
        return SweepModel(total, moved, learned=learned, learned_before=learned)


def _together(measured: Sequence[Measured]) -> Measured:
    """Return the counts of several shards as those of one."""
    *counted, seeds, (sweep, *_) = zip(*measured, strict=True)
    documents, singles, lengths, words = map(merge_counts, counted)
    return Measured(documents, singles, lengths, words, seeding.chain_seeds(seeds), sweep)
