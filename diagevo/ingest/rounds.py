"""Rounds from ingested groups: opened with what is waiting, diagnosed, committed, one after the other."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from diagevo.equations.filter import verdict_of_rewards, votes_of_rewards
from diagevo.equations.states import Part, part_in_schedule
from diagevo.errors import ConfigError, OutOfOrderError
from diagevo.ingest.rollout_steps import LAST, ingested
from diagevo.memory.events import (
    CandidateScored,
    CauseCreated,
    CauseMatched,
    FailureAssigned,
    FailureObserved,
    GroupIngested,
    RoundCommitted,
    RoundsSuperseded,
    number_of,
)
from diagevo.memory.events.catalogue import Evidence
from diagevo.memory.log.log import Log
from diagevo.memory.memory import Memory
from diagevo.memory.state.model import Attempts

if TYPE_CHECKING:
    from diagevo.config.models import DiagnosisConfig, MemoryConfig
    from diagevo.diagnosis.cause_extraction import OnProgress, ShouldStop
    from diagevo.diagnosis.diagnostician import Computed, Diagnostician, UnreadableReplyGuard
    from diagevo.diagnosis.embedder import Embedder
    from diagevo.ingest.local import LocalCauses
from diagevo.memory.state.assignments import Move, moves


@dataclass(frozen=True, slots=True)
class Aim:
    """An Active cause, optionally with a Mastered one."""

    cause_id: str
    stitched_cause_id: str | None = None

    @classmethod
    def still(
        cls, cause_id: str | None, stitched: str | None, parts: Mapping[str, Part | None]
    ) -> "Aim | None":
        """What a prompt that was drawn for these causes aims at now that they have these parts."""
        if cause_id is None or parts.get(cause_id) != "target":
            return None
        return cls(cause_id, stitched if stitched is not None and parts.get(stitched) == "partner" else None)


class LastFailures:
    """For every prompt that ever failed, the causes of its last failures, by the digest of its text. Our
    rule, for trainers whose prompts are not written for a cause: a recurring prompt aims at the Active cause
    that most of its last failures were assigned to (ties: the older cause), and is stitched to the Mastered
    one, if there is one. Its last failures are those of the last round in which it had any that were assigned
    to a cause. So Equations 6 and 7 work for a data set that is read repeatedly: P_t(e) are the recurring
    prompts.
    """

    def __init__(self) -> None:
        self._causes: dict[str, tuple[int, Counter[str]]] = {}
        self._moved: dict[str, list[Move]] = {}
        """Later assignments by hand, by the digest of the prompt."""

    def read(self, log: Log, run_id: str, rounds: Sequence[int]) -> None:
        """Load what these rounds committed, in order, and later assignments."""
        self._moved = {}
        for fact in moves(log, run_id):
            self._moved.setdefault(fact.event.failure.question, []).append(fact.event)
        if not rounds:
            return
        wanted = set(rounds)
        questions: dict[str, str] = {}
        types = ["CandidateScored", "CauseCreated", "CauseMatched"]
        for recorded in log.read(run_id, types=types, rounds=(rounds[0], rounds[-1])):
            if recorded.round not in wanted:
                continue
            match recorded.event:
                case CandidateScored() as scored if scored.verdict in ("kept", "too_hard"):
                    questions[scored.question_id] = scored.question
                case (
                    CauseCreated(failure_id=failure_id, cause_id=cause_id)
                    | CauseMatched(failure_id=failure_id, cause_id=cause_id)
                ):
                    digest = questions[failure_id.rpartition(".")[0]]
                    round_, causes = self._causes.get(digest, (0, Counter()))
                    if round_ != recorded.round:
                        causes = Counter()
                        self._causes[digest] = recorded.round, causes
                    causes[cause_id] += 1
                case _:
                    pass

    def aim(self, digest: str, parts: Mapping[str, Part | None]) -> Aim | None:
        """What the prompt aims at while the causes have these parts; None: nothing, it is free."""
        last, causes = self._causes.get(digest, (0, Counter[str]()))
        if moved := self._moved.get(digest):
            last = max([last, *(one.failure.round for one in moved if isinstance(one, FailureAssigned))])
            causes = causes.copy() if last == self._causes.get(digest, (0,))[0] else Counter[str]()
            for one in moved:
                if one.failure.round == last:
                    causes[one.cause_id] += 1 if isinstance(one, FailureAssigned) else -1
            causes = +causes
        ranked = sorted(causes, key=lambda cause_id: (-causes[cause_id], number_of(cause_id)))
        active = next((c for c in ranked if parts.get(c) == "target"), None)
        if active is None:
            return None
        return Aim(active, next((c for c in ranked if parts.get(c) == "partner"), None))


def prompts_that_passed(log: Log, run_id: str) -> dict[str, bool]:
    """Every prompt that was rolled out, by digest, and whether any of its rollouts passed."""
    passed: dict[str, bool] = {}
    for recorded in log.read(run_id, types=["GroupIngested"]):
        if isinstance(group := recorded.event, GroupIngested):
            passed[group.question] = passed.get(group.question, False) or group.passes > 0
    return passed


def answered(group: GroupIngested) -> bool:
    """Whether all failed, and can be compared with the known answer."""
    return group.reference is None and group.answer is not None and bool(group.failed)


def asks_all_failed(memory: Memory) -> bool:
    """Whether groups in which all failed are diagnosed too, if the answer is known."""
    return _local(memory) or bool((memory.state.config or {}).get("ingest", {}).get("all_failed", False))


def _local(memory: Memory) -> bool:
    """Whether no model is asked: then each failure is examined, whatever there is to compare it with."""
    roles = (memory.state.config or {}).get("roles", {})
    return bool(roles.get("diagnostician", {}).get("engine") == "local")


class Rounds:
    """The rounds of a run that are made from ingested groups."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._last = LastFailures()
        self._read = 0
        """The last round that `_last` has loaded."""
        self._superseded = memory.state.superseded

    def waiting(self) -> Iterator[tuple[int, GroupIngested]]:
        """Groups of rounds that are not open yet, with their batches."""
        state = self.memory.state
        yield from self.groups(state.batch(state.last_opened + 1), LAST)

    @cached_property
    def _attempts(self) -> Attempts:
        return Attempts(self.memory.log.chosen(self.memory.run_id, [GroupIngested]))

    def groups(self, first: int, last: int) -> Iterator[tuple[int, GroupIngested]]:
        """The valid groups of these batches, in order, with their batches."""
        found = ingested(self.memory, first, last)
        void = self._attempts.void
        return ((batch, group) for batch, group in found if not void(group.step, group.attempt))

    def open_next(self) -> int | None:
        """Open the next round with the groups that wait for it; None if there are none, or a round is
        open."""
        state = self.memory.state
        if state.open is not None:
            return None
        number = state.round + 1
        batch = state.batch(number)
        groups = [group for _, group in self.groups(batch, batch)]
        if not groups and next(self.waiting(), None) is None:
            return None
        self.play(number, groups)
        return number

    def computed(self, number: int) -> "dict[str, Computed]":
        """What a model is shown about a round's failures, by id."""
        from diagevo.ingest.local import LocalCauses, is_plain

        named = self._named(number, self.memory.state.batch(number))
        known = LocalCauses(self.memory, named.values()).explained(named)
        return {name: words for name, (found, words) in known.items() if not is_plain(found)}

    def plain(self, batch: int) -> set[str]:
        """The responses of a batch, by digest, whose failure is not a reasoning mistake."""
        from diagevo.ingest.local import LocalCauses, is_plain

        named = self._named(0, batch)
        known = LocalCauses(self.memory, named.values()).explained(named)
        of = {
            f"{name}.a{each.sample}": each.trajectory
            for name, group in named.items()
            for each in group.failed
        }
        return {of[name] for name, (found, _) in known.items() if is_plain(found)}

    def probe(self, first: int, diagnostician: "Diagnostician") -> None:
        """Ask about three failures of round `first`, as if nothing were known: unreadable replies raise
        ServiceError before anything is superseded. Replies are kept."""
        from diagevo.diagnosis.cause_extraction import diagnosed, pair_of, passed
        from diagevo.diagnosis.diagnostician import PROBED, UnreadableReplyGuard

        memory = self.memory
        computed = self.computed(first)
        read = memory.log.chosen(memory.run_id, [FailureObserved], (first, first))
        failures = (each.event for each in read if each.event.failure_id in computed)
        observed = list(islice(failures, PROBED))
        legibility = UnreadableReplyGuard(whole=True)
        for failure in observed:
            scored, known = memory.question(failure.question_id), computed.get(failure.failure_id)
            digests = (scored.question, passed(failure, known), failure.trajectory)
            pair = pair_of(failure, scored, memory.artifacts.get_many(digests), known)
            extraction = diagnostician.extract(pair)
            _, error = legibility.sift([(diagnosed(failure, pair, extraction), extraction.unread)])
            if error is not None:
                raise error
        legibility.rest()

    def supersede(self, first: int, reason: str) -> RoundsSuperseded:
        """Supersede the diagnoses of rounds from `first` on; their groups wait again, to be processed as the
        rounds that follow. Raises NotFoundError if `first` does not count, ConfigError if it was not
        ingested: the later questions of `diagevo train` depended on the old diagnoses.
        """
        memory = self.memory
        if memory.played_by_train or next(self.groups(1, LAST), None) is None:
            raise ConfigError(
                f"run {memory.run_id} was not ingested: what was asked after round {first} "
                "depended on its diagnoses",
                hint="start again from the round before: diagevo runs fork"
                f" {memory.run_id}@{max(first - 1, 0)}",
            )
        from diagevo.ingest.carried import carry, name_causes

        with memory.atomic():
            event = memory.supersede(first, reason)
            carry(memory, memory.state.counted())
            name_causes(memory)
            return event

    def play(self, number: int, groups: Sequence[GroupIngested]) -> None:
        """Open a round, score its groups as candidates, and observe their failures: one transaction."""
        memory = self.memory
        with memory.atomic():
            memory.open_round(number)
            memory.score(self._candidates(number, groups))
            memory.observe(list(self._failures(number, groups)))

    def all_failed(self, *, since: int | None = None) -> list[GroupIngested]:
        """Groups in which all failed: unobserved ones of the open round, and those of later rounds; or all
        from round `since`."""
        state = self.memory.state
        now = state.open
        first = state.last_opened + 1 if now is None else now.number
        known = {failure.question_id for failure in now.failures.values()} if now and since is None else set()
        return [
            group
            for place, group in enumerate(g for _, g in self.groups(state.batch(since or first), LAST))
            if not group.passes and (now is None or f"r{now.number}.q{place}" not in known)
        ]

    def observe_all_failed(self) -> None:
        """Also observe the open round's failures of groups in which all failed. Idempotent."""
        memory = self.memory
        if memory.state.open is None:
            return
        number = memory.state.open.number
        batch = memory.state.batch(number)
        observed = self._failures(number, [group for _, group in self.groups(batch, batch)])
        memory.observe([failure for failure in observed if failure.against != "response"])

    def _failures(self, number: int, groups: Sequence[GroupIngested]) -> Iterator[FailureObserved]:
        """The failures to diagnose, each with a response that passed, else the known answer if
        requested, else nothing."""
        every, local = asks_all_failed(self.memory), _local(self.memory)
        for place, group in enumerate(groups):
            reference: str | None = group.reference
            against: Evidence = "response"
            if every and answered(group):
                assert group.answer is not None
                [reference], against = self.memory.artifacts.put_many([group.answer]), "answer"
            elif local and reference is None and group.failed:
                [reference], against = self.memory.artifacts.put_many([""]), "nothing"
            if reference is None:
                continue
            feedback = {each.sample: each.text for each in group.feedback}
            for failed in group.failed:
                yield FailureObserved(
                    failure_id=f"r{number}.q{place}.a{failed.sample}",
                    question_id=f"r{number}.q{place}",
                    stage="solver",
                    attempt=1,
                    step=group.step,
                    trajectory=failed.trajectory,
                    reference=reference,
                    against=against,
                    feedback=feedback.get(failed.sample),
                )

    def diagnose(
        self,
        diagnostician: "Diagnostician | LocalCauses",
        embedder: "Embedder",
        settings: "DiagnosisConfig",
        memory_settings: "MemoryConfig",
        on_progress: "OnProgress | None" = None,
        *,
        should_stop: "ShouldStop | None" = None,
        on_commit: Callable[[int, RoundCommitted], None] = lambda _n, _c: None,
    ) -> list[RoundCommitted]:
        """Diagnose and commit every waiting round; an interrupted one continues where it stopped.

        Raises OutOfOrderError if the open round is not made from ingested groups, and whatever `maintain`
        raises.
        """
        from diagevo.diagnosis.diagnostician import UnreadableReplyGuard

        committed: list[RoundCommitted] = []
        legibility = UnreadableReplyGuard(whole=True)
        while self.memory.state.open is not None or self.open_next() is not None:
            event = self.diagnose_open(
                diagnostician,
                embedder,
                settings,
                memory_settings,
                on_progress,
                should_stop=should_stop,
                legibility=legibility,
            )
            committed.append(event)
            on_commit(self.memory.state.round, event)
        return committed

    def diagnose_open(
        self,
        diagnostician: "Diagnostician | LocalCauses",
        embedder: "Embedder",
        settings: "DiagnosisConfig",
        memory_settings: "MemoryConfig",
        on_progress: "OnProgress | None" = None,
        *,
        should_stop: "ShouldStop | None" = None,
        legibility: "UnreadableReplyGuard | None" = None,
    ) -> RoundCommitted:
        """Diagnose and commit the open round, as `diagnose` does with every one."""
        from diagevo.diagnosis.diagnostician import UnreadableReplyGuard
        from diagevo.diagnosis.maintain import maintain
        from diagevo.ingest.carried import carry
        from diagevo.ingest.local import LocalCauses

        memory = self.memory
        assert memory.state.open is not None
        number = memory.state.open.number
        batch = memory.state.batch(number)
        if next(self.groups(batch, LAST), None) is None:
            raise OutOfOrderError(
                f"round {number} of run {memory.run_id} is open and was not ingested",
                hint=f"finish it: diagevo train --run {memory.run_id} --resume",
            )
        named = self._named(number, batch)
        if isinstance(diagnostician, LocalCauses):
            self.observe_all_failed()
            diagnostician.diagnose(named, on_progress, should_stop)
        else:
            local = LocalCauses(memory, named.values())
            known = local.explained(named)
            local.first_level({name: found for name, (found, _) in known.items()}, should_stop)
            words = [memory.state.found_as(cause) for cause in memory.state.causes.values()]
            memory.vectors(words, embedder.embed)  # also of those found without a model
            maintain(
                memory,
                diagnostician,
                embedder,
                settings,
                memory_settings,
                on_progress,
                should_stop=should_stop,
                legibility=legibility or UnreadableReplyGuard(whole=True),
                computed={name: words for name, (_, words) in known.items()},
            )
        with memory.atomic():
            event = memory.commit()
            carry(memory, [number])
        return event

    def _named(self, number: int, batch: int) -> dict[str, GroupIngested]:
        """The groups of a batch, by their questions' ids in its round."""
        return {f"r{number}.q{place}": group for place, (_, group) in enumerate(self.groups(batch, batch))}

    def _candidates(self, number: int, groups: Sequence[GroupIngested]) -> list[CandidateScored]:
        memory = self.memory
        if self._superseded != memory.state.superseded:
            self._last, self._read = LastFailures(), 0
            self._superseded = memory.state.superseded
        self._last.read(memory.log, memory.run_id, memory.state.counted(range(self._read + 1, number)))
        self._read = number - 1
        parts: dict[str, Part | None] = {
            c.cause_id: part_in_schedule(c.state) for c in memory.state.causes.values()
        }
        unlabelled = [g.reference for g in groups if g.reference and g.answer is None]
        references = memory.artifacts.get_many(unlabelled)
        return [
            self._candidate(f"r{number}.q{place}", group, parts, references)
            for place, group in enumerate(groups)
        ]

    def _candidate(
        self,
        question_id: str,
        group: GroupIngested,
        parts: Mapping[str, Part | None],
        references: Mapping[str, str],
    ) -> CandidateScored:
        draw, drawn = group.draw, None
        if draw is None:
            aim = self._last.aim(group.question, parts)
        else:
            aim = Aim.still(draw.cause_id, draw.stitched_cause_id, parts)
            drawn = None if draw.round == self.memory.state.round + 1 else draw.round
        responses = len(group.rewards)
        label = group.answer
        if label is None and group.reference is not None:
            text = references[group.reference]
            if "box" in text:  # \boxed or \fbox: without one nothing that reads mathematics is imported
                from diagevo.answers.extraction import extract_boxed

                label = extract_boxed(text)
        return CandidateScored(
            question_id=question_id,
            question=group.question,
            mode="free" if aim is None else "targeted" if aim.stitched_cause_id is None else "stitched",
            cause_id=None if aim is None else aim.cause_id,
            stitched_cause_id=None if aim is None else aim.stitched_cause_id,
            responses=responses,
            votes=votes_of_rewards(group.passes, responses),
            first=group.passes,
            second=responses - group.passes,
            label=label,
            verdict=verdict_of_rewards(group.passes, responses),
            reference=group.reference,
            votes_are="rewards",
            drawn_round=drawn,
        )
