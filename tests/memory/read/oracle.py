"""Every projected table and every published view of a run, worked out from the payloads of its events.

Plain Python over JSON: nothing of the projector, the fold or the views is imported, so that a mistake of
theirs cannot be made here too. A new event or state of a cause is a case of `_play`; a new column is a line
of the table or view that has it.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from statistics import fmean, stdev
from typing import Any

Row = dict[str, Any]
STANDING = {"RoundCommitted", "RoundsSuperseded", "CauseRenamed", "CauseDismissed", "CauseReinstated"}
STANDING |= {"CauseAdded", "FailureAssigned", "FailureUnassigned"}
"""Events after which the tables have the memory as it stands."""
VERDICTS = ("kept", "too_easy", "too_hard", "contested", "no_label", "invalid")


@dataclass
class Event:
    """A row of `event`, its payload read."""

    position: int
    event_id: str
    sequence: int
    round: int
    type: str
    cause_id: str | None
    payload: str
    causation_id: str | None
    recorded_at: str
    run_id: str
    told: Row


@dataclass
class Standing:
    """The memory at a moment."""

    causes: dict[str, Row] = field(default_factory=dict)
    nodes: dict[str, Row] = field(default_factory=dict)
    """Living ones: label and members."""
    gone: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Merged ones: the survivor, and the label they had."""
    reference: tuple[int | None, int | None] = (None, None)
    """The round of F₁, and F₁."""
    promoted: dict[str, int] = field(default_factory=dict)
    """The round of a cause's last promotion: what failed before it is in no f."""
    moved: list[Event] = field(default_factory=list)
    """What somebody said of failures, as far as it stands."""

    def move(self, event: Event, by: int) -> None:
        """A failure to a cause (1), or out of it (-1)."""
        self.moved.append(event)
        cause = self.causes[event.told["cause_id"]]
        if event.told["failure"]["round"] < self.promoted.get(cause["cause_id"], 0):
            return
        cause["frequency"] += by
        if cause["state"] != "dismissed":
            once = cause["cause_id"] in self.promoted
            cause["state"] = "mastered" if once and not cause["frequency"] else "active"

    @property
    def failures(self) -> int:
        return sum(one["frequency"] for one in self.causes.values() if one["state"] == "active")

    @property
    def hash(self) -> str:
        names = ("cause_id", "description", "node_id", "state", "frequency")
        causes = [[one[name] for name in names] for one in self.causes.values()]
        nodes = [[name, one["label"], one["members"]] for name, one in self.nodes.items()]
        text = json.dumps([*self.reference, causes, nodes], ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


class Oracle:
    """A run. `texts`: what is stored, by digest."""

    def __init__(self, log: Iterable[Any], texts: Mapping[str, str] | None = None) -> None:
        self.texts = texts or {}
        names = [name for name in Event.__dataclass_fields__ if name != "told"]
        self.events = [
            Event(**{name: getattr(one, name) for name in names}, told=json.loads(one.payload)) for one in log
        ]
        self.by_id = {one.event_id: one for one in self.events}
        self.run = self.events[0].run_id
        self.opened: dict[int, Row] = {}
        self.committed: dict[int, tuple[Event, Standing, Fraction]] = {}
        """By round: the commit, the memory after it and k."""
        self.told: Standing = Standing()
        """The memory as of the last commit, superseding or renaming: what `cause` and `skill_node` have."""
        self._play()

    def of(self, *types: str, round: int | None = None) -> list[Event]:
        return [one for one in self.events if one.type in types and round in (None, one.round)]

    def _play(self) -> None:
        now, began, k = Standing(), dict[int, Standing](), Fraction(1, 2)
        for event in self.events:
            told = event.told
            match event.type:
                case "RunConfigured":
                    k = Fraction(told["config"].get("schedule", {}).get("k", k))
                case "RoundOpened":
                    began[event.round] = deepcopy(now)
                    self._open(event)
                case "CausePromoted":
                    now.causes[told["cause_id"]] |= {"state": "mastered", "frequency": 0}
                    now.promoted[told["cause_id"]] = event.round
                case "CauseReactivated":
                    now.causes[told["cause_id"]] |= {"state": "active", "frequency": 1}
                case "CauseMatched":
                    one = now.causes[told["cause_id"]]
                    one["frequency"] += one["state"] != "mastered"
                case "NodeCreated":
                    now.nodes[told["node_id"]] = {"label": told["label"], "members": []}
                case "CauseCreated":
                    new = {name: told[name] for name in ("cause_id", "description", "node_id")}
                    new |= {"state": "active", "frequency": 1, "created_round": event.round}
                    now.causes[told["cause_id"]] = new
                    now.nodes[told["node_id"]]["members"].append(told["cause_id"])
                case "NodesMerged":
                    _merge(now, told["survivor"], told["absorbed"], told["label"])
                case "CauseDismissed":
                    now.causes[told["cause_id"]]["state"] = "dismissed"
                case "CauseReinstated":
                    one = now.causes[told["cause_id"]]
                    never = told["cause_id"] not in now.promoted
                    one["state"] = "active" if one["frequency"] or never else "mastered"
                case "CauseAdded":
                    new = {name: told[name] for name in ("cause_id", "description", "node_id")}
                    new |= {"state": "active", "frequency": 0, "created_round": event.round}
                    now.causes[told["cause_id"]] = new
                    if told["label"] is not None:
                        now.nodes[told["node_id"]] = {"label": told["label"], "members": []}
                    now.nodes[told["node_id"]]["members"].append(told["cause_id"])
                case "FailureAssigned":
                    now.move(event, 1)
                case "FailureUnassigned":
                    now.move(event, -1)
                case "CauseRenamed":
                    now.causes[told["cause_id"]]["description"] = told["description"]
                case "RoundCommitted":
                    if now.reference[1] is None and now.failures:
                        now.reference = event.round, now.failures
                    self.committed[event.round] = event, deepcopy(now), k
                case "RoundsSuperseded":
                    self._supersede(event)
                    now = deepcopy(began[told["first"]])
            if event.type in STANDING:
                self.told = deepcopy(now)

    def _open(self, event: Event) -> None:
        row = {"run_id": self.run, "round": event.round, "position": event.position}
        batch = 1 + sum(one["superseded_by"] is None for one in self.opened.values())
        self.opened[event.round] = row | {"batch": batch, "superseded_by": None, "superseded_at": None}

    def _supersede(self, event: Event) -> None:
        first, last = event.told["first"], event.told["last"]
        still = [one for n, one in self.opened.items() if first <= n <= last and one["superseded_by"] is None]
        for place, row in enumerate(still, 1):
            row |= {"superseded_by": last + place, "superseded_at": event.position}

    @cached_property
    def counting(self) -> dict[int, int]:
        """The rounds that count, by their batch."""
        return {one["batch"]: number for number, one in self.opened.items() if not one["superseded_by"]}

    def counted(self, *types: str) -> list[Event]:
        """Events of rounds that count."""
        rounds = set(self.counting.values())
        return [one for one in self.of(*types) if one.round in rounds]

    def void(self, event: Event) -> bool:
        """Whether what training observed went with its attempt."""
        told = event.told
        return any(
            gone.told["stage"] == told["stage"]
            and gone.told["attempt"] >= told["attempt"]
            and gone.told["after_step"] < told["step"]
            for gone in self.of("StageAbandoned", round=event.round)
        )

    def settled(self, round: int) -> dict[str, str]:
        """Failures of a round that are counted under a cause."""
        found = self.of("CauseCreated", "CauseMatched", round=round)
        return {one.told["failure_id"]: one.told["cause_id"] for one in found}

    def asked(self, round: int) -> dict[str, Row]:
        return {one.told["question_id"]: one.told for one in self.of("CandidateScored", round=round)}

    @cached_property
    def groups(self) -> list[Event]:
        """Another trainer's groups but for those that a later attempt played again."""
        began: dict[int, int] = {}
        for one in self.of("GroupIngested"):
            began.setdefault(one.told["attempt"], one.told["step"])

        def again(told: Row) -> bool:
            return any(later > told["attempt"] and step <= told["step"] for later, step in began.items())

        return [one for one in self.of("GroupIngested") if not again(one.told)]

    def text(self, digest: str | None) -> str | None:
        return None if digest is None else self.texts.get(digest)

    # The tables.

    def cause(self) -> list[Row]:
        return [
            {"run_id": self.run, "number": _number(name), **one} for name, one in self.told.causes.items()
        ]

    def skill_node(self) -> list[Row]:
        living = [(name, one["label"], None) for name, one in self.told.nodes.items()]
        gone = [(name, label, survivor) for name, (survivor, label) in self.told.gone.items()]
        return [
            {"run_id": self.run, "node_id": name, "number": _number(name), "label": label, "absorbed_by": by}
            for name, label, by in (*living, *gone)
        ]

    def opened_round(self) -> list[Row]:
        return list(self.opened.values())

    def round_summary(self) -> list[Row]:
        return [self._summary(*self.committed[number]) for number in self.committed]

    def _summary(self, commit: Event, memory: Standing, k: Fraction) -> Row:
        number = commit.round
        first = memory.reference[1]
        # Equation 1: 1 / (1 + z/k), z = F / F₁.
        epsilon = Fraction(1)
        if first is not None and memory.failures:
            epsilon = k * first / (k * first + memory.failures)
        states = Counter(one["state"] for one in memory.causes.values())
        [opened] = self.of("RoundOpened", round=number)
        return {
            "run_id": self.run,
            "round": number,
            **self._of_questions(number),
            **self._of_failures(number),
            "first_sequence": opened.sequence,
            "last_sequence": commit.sequence,
            "position": commit.position,
            "failures": memory.failures,
            "reference_round": memory.reference[0],
            "reference_failures": first,
            "epsilon_next": str(epsilon),
            "epsilon_next_value": float(epsilon),
            "active": states["active"],
            "mastered": states["mastered"],
            "nodes": len(memory.nodes),
            "state_hash": memory.hash,
            "committed_at": commit.recorded_at,
        }

    def _of_questions(self, number: int) -> Row:
        scored = list(self.asked(number).values())
        valid = [one for one in scored if one["verdict"] != "invalid"]
        answered, rewarded = (
            [one for one in valid if one["votes_are"] == kind] for kind in ("answers", "rewards")
        )
        labels = [one["label_true"] for one in scored if one["verdict"] == "kept"]
        reasons = [one["invalid_reason"] or "not_recorded" for one in scored if one["verdict"] == "invalid"]
        verdicts = Counter(one["verdict"] for one in scored)
        return {
            "candidates": len(scored),
            **{name: verdicts[name] for name in VERDICTS},
            "invalid_reasons": dict(Counter(reasons)),
            "responses": sum(one["responses"] for one in answered),
            "answers": sum(number for one in answered for _, number in one["votes"]),
            "rollouts": sum(one["responses"] for one in rewarded),
            "passes": sum(one["first"] for one in rewarded),
            "undecided": sum(one["undecided"] for one in valid),
            "labels_judged": sum(one is not None for one in labels),
            "labels_true": sum(one is True for one in labels),
        }

    def _of_failures(self, number: int) -> Row:
        asked, settled = self.asked(number), self.settled(number)
        failed = [one.told for one in self.of("FailureObserved", round=number) if not self.void(one)]
        judged = [one for one in failed if asked[one["question_id"]]["label_true"] is not None]
        false = [one for one in judged if not asked[one["question_id"]]["label_true"]]

        def right(of: list[Row]) -> int | None:
            known = [one["right"] for one in of if one["right"] is not None]
            return sum(known) if known else None

        def causes(type_: str) -> list[str]:
            return sorted({one.told["cause_id"] for one in self.of(type_, round=number)}, key=_number)

        promoted, reactivated = causes("CausePromoted"), causes("CauseReactivated")
        return {
            "observed": len(failed),
            "against_answers": sum(one["against"] == "answer" for one in failed),
            "failures_judged": len(judged),
            "against_false_labels": len(false),
            "right_answers": right(judged),
            "right_against_false": right(false),
            "with_cause": len(settled),
            "questions_with_cause": len({_question(name) for name in settled}),
            "promoted": len(promoted),
            "promoted_causes": promoted,
            "reactivated": len(reactivated),
            "reactivated_causes": reactivated,
            "created": len(causes("CauseCreated")),
        }

    def cause_question(self) -> list[Row]:
        rows: list[Row] = []
        for number in self.opened:
            asked = self.asked(number)
            pairs = Counter((_question(name), cause) for name, cause in self.settled(number).items())
            for (question, cause), failures in pairs.items():
                row = {"run_id": self.run, "round": number, "question_id": question, "cause_id": cause}
                row |= {name: asked[question][name] for name in ("question", "responses", "first")}
                rows.append(row | {"failures": failures})
        keys = {(row["round"], row["question_id"], row["cause_id"]) for row in rows}
        for one in self.of("FailureAssigned", "FailureUnassigned"):  # a row stays, whatever is taken back
            failure, cause = one.told["failure"], one.told["cause_id"]
            key = failure["round"], _question(failure["failure_id"]), cause
            if key not in keys:
                keys.add(key)
                row = {"run_id": self.run, "round": key[0], "question_id": key[1], "cause_id": cause}
                asked = self.asked(key[0])[key[1]]
                row |= {name: asked[name] for name in ("question", "responses", "first")}
                rows.append(row | {"failures": 0})
        return rows

    def moved_failure(self) -> list[Row]:
        rows: list[Row] = []
        for one in self.told.moved:
            failure = one.told["failure"]
            question = _question(failure["failure_id"])
            rows.append(
                {
                    "run_id": self.run,
                    "position": one.position,
                    "round": failure["round"],
                    "question_id": question,
                    "failure_id": failure["failure_id"],
                    "cause_id": one.told["cause_id"],
                    "question": self.asked(failure["round"])[question]["question"],
                    "failures": 1 if one.type == "FailureAssigned" else -1,
                }
            )
        return rows

    def _moved_to(self) -> dict[str, str | None]:
        """The cause of each failure that somebody moved."""
        return {
            one.told["failure"]["failure_id"]: one.told["cause_id"] if one.type == "FailureAssigned" else None
            for one in self.told.moved
        }

    def cause_history(self) -> list[Row]:
        questions = [row for row in self.cause_question() if row["failures"]]
        rows: list[Row] = []
        for number, (_, memory, _) in self.committed.items():
            for name, one in memory.causes.items():
                on = [row for row in questions if (row["round"], row["cause_id"]) == (number, name)]
                aimed = [told for told in self.asked(number).values() if told["cause_id"] == name]
                valid = [told for told in aimed if told["verdict"] != "invalid"]
                agreeing = [Fraction(told["first"], told["responses"]) for told in valid]
                active = one["state"] == "active" and one["frequency"]
                rows.append(
                    {
                        "run_id": self.run,
                        "round": number,
                        "cause_id": name,
                        "failures": sum(row["failures"] for row in on),
                        "questions": len(on),
                        "responses": sum(row["responses"] for row in on),
                        "first": sum(row["first"] for row in on),
                        "aimed": len(aimed),
                        "aimed_kept": sum(told["verdict"] == "kept" for told in aimed),
                        "aimed_valid": len(valid),
                        "agreement": str(sum(agreeing) / len(valid)) if valid else None,
                        "node_id": one["node_id"],
                        "node_label": memory.nodes[one["node_id"]]["label"],
                        "description": one["description"],
                        "state": one["state"],
                        "frequency": one["frequency"],
                        # Equation 2, p: f over the sum of f.
                        "probability": str(Fraction(one["frequency"], memory.failures)) if active else None,
                    }
                )
        return rows

    def snapshot(self) -> list[Row]:
        return [
            {
                "run_id": self.run,
                "round": number,
                "sequence": commit.sequence,
                "position": commit.position,
                "state_hash": memory.hash,
            }
            for number, (commit, memory, _) in self.committed.items()
        ]

    def ingested_group(self) -> list[Row]:
        return [
            {
                "position": one.position,
                "run_id": self.run,
                "batch": one.round,
                "step": one.told["step"],
                "attempt": one.told["attempt"],
                "place": one.told["group"],
                "question": one.told["question"],
                "rollouts": len(one.told["rewards"]),
                "passes": one.told["passes"],
                "tags": one.told["tags"],
            }
            for one in self.groups
        ]

    def ingested_sum(self) -> list[Row]:
        found: dict[tuple[int, int, str], list[Row]] = defaultdict(list)
        for one in self.ingested_group():
            for tag in {"", *(f"#{tag}" for tag in one["tags"])}:
                found[one["batch"], one["step"], tag].append(one)
        return [
            {"run_id": self.run, "batch": batch, "step": step, "tag": tag, **_outcomes(of)}
            for (batch, step, tag), of in found.items()
        ]

    def ingested_prompt(self) -> list[Row]:
        explained = Counter[str]()
        for row in self.cause_question():
            asked = self.asked(row["round"])[row["question_id"]]
            if row["round"] in self.counting.values() and asked["votes_are"] == "rewards":
                explained[row["question"]] += row["failures"]
        for row in self.moved_failure():
            explained[row["question"]] += row["failures"]
        found: dict[str, list[Row]] = defaultdict(list)
        for one in self.ingested_group():
            found[one["question"]].append(one)
        rows: list[Row] = []
        for question, of in found.items():
            steps = sorted({one["step"] for one in of})
            row = {"run_id": self.run, "question": question, "position": of[0]["position"]}
            row |= {"steps": len(steps), "rollouts": _sum(of, "rollouts"), "passes": _sum(of, "passes")}
            row["unanswered"] = sum(one["rollouts"] for one in of if not one["passes"])
            for which, step in (("first", steps[0]), ("last", steps[-1])):
                there = [one for one in of if one["step"] == step]
                row |= {f"{which}_step": step}
                row |= {f"{which}_{name}": _sum(there, name) for name in ("rollouts", "passes")}
            rows.append(row | {"explained": explained[question]})
        return rows

    def tables(self) -> dict[str, list[Row]]:
        """Every projection; of a snapshot, what stands beside its bytes."""
        return {
            "cause": self.cause(),
            "skill_node": self.skill_node(),
            "opened_round": self.opened_round(),
            "round_summary": self.round_summary(),
            "cause_question": self.cause_question(),
            "cause_history": self.cause_history(),
            "snapshot": self.snapshot(),
            "ingested_group": self.ingested_group(),
            "ingested_sum": self.ingested_sum(),
            "ingested_prompt": self.ingested_prompt(),
            "moved_failure": self.moved_failure(),
        }

    # The views.

    def v_event(self) -> list[Row]:
        return [
            {name: getattr(one, name) for name in Event.__dataclass_fields__ if name != "told"}
            for one in self.events
        ]

    def v_cause(self) -> list[Row]:
        labels = {name: one["label"] for name, one in self.told.nodes.items()}
        return [row | {"node": labels[row["node_id"]]} for row in self.cause()]

    def v_node(self) -> list[Row]:
        held = Counter(row["node_id"] for row in self.cause())
        return [row | {"causes": held[row["node_id"]]} for row in self.skill_node()]

    def v_superseded(self) -> list[Row]:
        return [
            {"run_id": self.run, "position": one.position}
            | {name: one.told[name] for name in ("first", "last", "reason")}
            for one in self.of("RoundsSuperseded")
        ]

    def v_round(self) -> list[Row]:
        names = ("superseded_at", "superseded_by")
        drawn = {one.round: one.told["epsilon"] for one in self.of("RoundOpened")}
        return [
            _committed(row)
            | {name: self.opened[row["round"]][name] for name in names}
            | {"epsilon": drawn[row["round"]]}
            for row in self.round_summary()
        ]

    def v_cause_rate(self) -> list[Row]:
        found: dict[str, list[Row]] = defaultdict(list)
        for row in self.v_cause_question():
            found[row["cause_id"]].append(row)
        return [
            {
                "run_id": self.run,
                "cause_id": cause,
                "failures": _sum(of, "failures"),
                "questions": len(of),
                "responses": _sum(of, "responses"),
                "first": _sum(of, "first"),
                "pass_rate": _sum(of, "first") / _sum(of, "responses"),
            }
            for cause, of in found.items()
        ]

    def v_cause_question(self) -> list[Row]:
        moved = Counter[tuple[int, str, str]]()
        for row in self.moved_failure():
            moved[row["round"], row["question_id"], row["cause_id"]] += row["failures"]
        rows = [
            row | {"failures": row["failures"] + moved[row["round"], row["question_id"], row["cause_id"]]}
            for row in self._that_count(self.cause_question())
        ]
        return [row for row in rows if row["failures"]]

    def v_assignment(self) -> list[Row]:
        last = {one.told["failure"]["failure_id"]: one for one in self.told.moved}
        return [
            {"run_id": self.run, "position": one.position, "failure_id": name, "cause_id": one.cause_id}
            | {"round": one.told["failure"]["round"], "by": one.told["by"], "note": one.told["note"]}
            | {"recorded_at": one.recorded_at}
            for name, one in last.items()
            if one.type == "FailureAssigned" and not one.told["undo"]
        ]

    def _that_count(self, rows: list[Row]) -> list[Row]:
        return [row for row in rows if row["round"] in self.counting.values()]

    def _rows(self, events: list[Event], fields: str, *, about: bool = False) -> list[Row]:
        """Where each event stands, and fields of its payload; `about`: with the cause that it is about."""
        return [
            {"run_id": self.run, "position": one.position, "round": one.round}
            | ({"cause_id": one.cause_id} if about else {})
            | {name: one.told.get(name) for name in fields.split()}
            for one in events
        ]

    def v_candidate(self) -> list[Row]:
        fields = """question_id mode stitched_cause_id responses first second label verdict question reference
        votes invalid_reason undecided truth label_true drawn_round votes_are"""
        return self._rows(self.counted("CandidateScored"), fields, about=True)

    def _observed(self) -> list[tuple[Event, Row]]:
        """Failures that count, and what was asked."""
        there = [one for one in self.counted("FailureObserved") if not self.void(one)]
        return [(one, self.asked(one.round)[one.told["question_id"]]) for one in there]

    def v_failure(self) -> list[Row]:
        fields = "failure_id question_id stage attempt step trajectory reference feedback against"
        rows: list[Row] = []
        for event, asked in self._observed():
            [row] = self._rows([event], fields)
            row |= {name: asked[name] for name in ("question", "label", "truth", "label_true")}
            rows.append(row | {"right_answer": event.told["right"]})
        return rows

    def v_diagnosis(self) -> list[Row]:
        there = [
            one
            for one in self.counted("FailureDiagnosed")
            if one.causation_id is None or not self.void(self.by_id[one.causation_id])
        ]
        return self._rows(there, "failure_id attempt verdict description", about=True)

    def v_own_id(self) -> list[Row]:
        return self._rows(self.counted("IdGiven"), "named own_id")

    def v_match(self) -> list[Row]:
        return self._rows(self.counted("CauseMatched"), "failure_id via", about=True)

    def v_promotion(self) -> list[Row]:
        fields = "questions consistency threshold closed_frequency"
        return self._rows(self.counted("CausePromoted"), fields, about=True)

    def v_reactivation(self) -> list[Row]:
        return self._rows(self.counted("CauseReactivated"), "failure_id promotion", about=True)

    def _words(self, cause_id: str | None) -> str | None:
        """Of a cause as of the last commit."""
        one = self.told.causes.get(cause_id or "")
        return None if one is None else one["description"]

    def v_question(self) -> list[Row]:
        left = ("reference", "undecided", "drawn_round", "question")
        return [
            {name: value for name, value in row.items() if name not in left}
            | {
                "text": self.text(row["question"]),
                "cause": self._words(row["cause_id"]),
                "stitched_cause": self._words(row["stitched_cause_id"]),
            }
            for row in self.v_candidate()
        ]

    def v_trajectory(self) -> list[Row]:
        under = {
            (one.round, one.told["failure_id"]): (one.told.get("via", "new cause"), one.cause_id)
            for one in self.counted("CauseCreated", "CauseMatched")
        }
        rows: list[Row] = []
        for row in self.v_failure():
            via, cause = under.get((row["round"], row["failure_id"]), (None, None))
            if row["failure_id"] in (moved := self._moved_to()) and moved[row["failure_id"]] != cause:
                cause = moved[row["failure_id"]]
                via = None if cause is None else "assigned"
            texts = {
                name: self.text(row[name]) for name in ("question", "trajectory", "reference", "feedback")
            }
            kept = {name: value for name, value in row.items() if name not in ("stage", "step")}
            rows.append(kept | texts | {"via": via, "cause_id": cause, "cause": self._words(cause)})
        return rows

    def v_response(self) -> list[Row]:
        """Of another trainer's rollouts, else the failures."""
        cause_of = {(row["position"], row["failure_id"]): row["cause_id"] for row in self.v_trajectory()}
        observed = {
            (row["failure_id"], row["trajectory"]): cause_of[row["position"], row["failure_id"]]
            for row in self.v_failure()
        }
        rows = self._kept() if self.groups else self._failed()
        for row in rows:
            if not self.groups:
                row["cause_id"] = cause_of[row["position"], row["failure_id"]]
            elif row["verdict"] == "failed":
                failure = f"{row['question_id']}.a{row['sample']}"
                if (failure, row["trajectory"]) in observed:
                    row |= {"failure_id": failure, "cause_id": observed[failure, row["trajectory"]]}
            row |= {"run_id": self.run, "cause": self._words(row["cause_id"])}
            row |= {"prompt": self.text(row["question"]), "response": self.text(row["trajectory"])}
            row["feedback"] = self.text(row["feedback_digest"])
        return rows

    def _kept(self) -> list[Row]:
        """The responses of groups whose texts are stored."""
        place = Counter[int]()
        rows: list[Row] = []
        for event in self.groups:
            told, number = event.told, self._played(event.round)
            question = f"r{number}.q{place[number]}"
            place[number] += 1
            failed = {one["sample"]: one["trajectory"] for one in told["failed"]}
            said = {one["sample"]: one["text"] for one in told.get("feedback", [])}
            passed = list(told.get("passed", [])) or [told["reference"]] * (told["reference"] is not None)
            tags = told.get("tags", [])
            models = [tag[len("model=") :] for tag in tags if tag.startswith("model=")]
            for sample, reward in enumerate(told["rewards"]):
                text = failed[sample] if sample in failed else passed.pop(0) if passed else None
                if text is not None:
                    row = {"position": event.position, "round": number, "step": told["step"]}
                    row |= {"question_id": question, "sample": sample, "question": told["question"]}
                    row |= {"trajectory": text, "feedback_digest": said.get(sample), "reward": reward}
                    row |= {"verdict": "failed" if sample in failed else "passed"}
                    row |= {"model": models[0] if models else None, "failure_id": None, "cause_id": None}
                    rows.append(row | {"tags": [tag for tag in tags if not tag.startswith("model=")]})
        return rows

    def _failed(self) -> list[Row]:
        kept = ("position", "round", "step", "question_id", "question", "trajectory", "failure_id")
        return [
            {name: row[name] for name in kept}
            | {"sample": int(row["failure_id"].split(".a")[1]), "feedback_digest": row["feedback"]}
            | {"verdict": "failed", "reward": None, "model": None, "tags": []}
            for row in self.v_failure()
        ]

    def v_stage(self) -> list[Row]:
        events = self.counted("StageCompleted", "StageAbandoned")
        rows = self._rows(events, "stage attempt seconds reward parts after_step reason")
        return [
            row | {"ended": one.type.removeprefix("Stage").lower()}
            for row, one in zip(rows, events, strict=True)
        ]

    def v_checkpoint(self) -> list[Row]:
        there = [
            one
            for one in self.of("CheckpointEvaluated")
            if one.round not in self.opened or one.round in self.counting.values()
        ]
        return self._rows(there, "role benchmark checkpoint questions conditions metrics seconds")

    def v_phase(self) -> list[Row]:
        fields = """stage attempt steps first_kl sampling_gap reward_lowest reward_highest completions cut_off
        attention findings"""
        return self._rows(self.counted("PhaseMeasured"), fields)

    def v_step_metric(self) -> list[Row]:
        there = [one for one in self.counted("StepTrained") if not self.void(one)]
        rows = self._rows(there, "stage attempt step loss entropy grad_norm kl")
        rewards = [[r for group in one.told["groups"] for r in group["rewards"]] for one in there]
        return [
            row | {"completions": len(of), "reward": fmean(of) if of else None}
            for row, of in zip(rows, rewards, strict=True)
        ]

    def _played(self, batch: int) -> int:
        """The round that plays a batch, or will: rounds that wait come after all that were opened."""
        gone = sum(one["superseded_by"] is not None for one in self.opened.values())
        return self.counting.get(batch, batch + gone)

    def v_group(self) -> list[Row]:
        rows: list[Row] = []
        for row, event in zip(self.ingested_group(), self.groups, strict=True):
            del row["tags"]
            n, passes = row["rollouts"], row["passes"]
            rows.append(
                row
                | {
                    "round": self._played(row["batch"]),
                    "prompt": self.text(row["question"]),
                    "answer": event.told["answer"],
                    "source": event.told["source"],
                    "pass_rate": passes / n,
                    "outcome": "all_failed" if not passes else "all_passed" if passes == n else "contrast",
                }
            )
        return rows

    def v_step(self) -> list[Row]:
        return [
            {name: value for name, value in row.items() if name not in ("batch", "tag")}
            | {"round": self._played(row["batch"]), "pass_rate": row["passes"] / row["rollouts"]}
            for row in self.ingested_sum()
            if not row["tag"]
        ]

    def v_prompt(self) -> list[Row]:
        kept = ("run_id", "question", "steps", "rollouts", "passes", "first_step", "last_step", "position")
        return [
            {name: row[name] for name in kept}
            | {
                "prompt": self.text(row["question"]),
                "first_pass_rate": row["first_passes"] / row["first_rollouts"],
                "last_pass_rate": row["last_passes"] / row["last_rollouts"],
                "failures": row["rollouts"] - row["passes"],
                "without_cause": row["rollouts"] - row["passes"] - row["explained"],
            }
            for row in self.ingested_prompt()
        ]

    def v_tag(self) -> list[Row]:
        found: dict[str, list[Row]] = defaultdict(list)
        for one in self.ingested_group():
            for tag in set(one["tags"]):
                found[tag].append(one)
        rows: list[Row] = []
        for tag, of in found.items():
            n, passes = _sum(of, "rollouts"), _sum(of, "passes")
            row = {"run_id": self.run, "tag": tag, "groups": len(of), "rollouts": n, "passes": passes}
            rows.append(row | {"pass_rate": passes / n})
        return rows

    def v_rollouts(self) -> list[Row]:
        prompts, again = self.ingested_prompt(), self.changes()
        if not prompts:
            return []
        rollouts, passes = _sum(prompts, "rollouts"), _sum(prompts, "passes")
        return [
            {
                "run_id": self.run,
                "prompts": len(prompts),
                "rollouts": rollouts,
                "passes": passes,
                "pass_rate": passes / rollouts,
                "never_passed": sum(not one["passes"] for one in prompts),
                "unanswered": _sum(prompts, "unanswered"),
                "without_cause": rollouts - passes - _sum(prompts, "explained"),
                "came_back": len(again),
                "first_pass_rate": fmean(a for a, _ in again) if again else None,
                "last_pass_rate": fmean(b for _, b in again) if again else None,
                "squared_changes": sum((b - a) ** 2 for a, b in again) if again else None,
                "dropped": sum(b < a for a, b in again),
            }
        ]

    def changes(self) -> list[tuple[float, float]]:
        """Pass rates of prompts that came back, the first and the last time."""
        return [
            (one["first_pass_rate"], one["last_pass_rate"])
            for one in self.v_prompt()
            if one["first_step"] < one["last_step"]
        ]

    def views(self) -> dict[str, list[Row]]:
        """Every published view."""
        return {
            "v_cause_history": [_committed(row) for row in self._that_count(self.cause_history())],
            **{
                name: getattr(self, name)()
                for name in dir(self)
                if name.startswith("v_") and name != "v_cause_history"
            },
        }


def _merge(now: Standing, survivor: str, absorbed: str, label: str) -> None:
    gone = now.nodes.pop(absorbed)
    now.gone[absorbed] = survivor, gone["label"]
    for cause in gone["members"]:
        now.causes[cause]["node_id"] = survivor
    members = sorted((*now.nodes[survivor]["members"], *gone["members"]), key=_number)
    now.nodes[survivor] |= {"label": label, "members": members}


def _committed(row: Row) -> Row:
    """What a commit says of the next round is called so in views."""
    names = {
        "epsilon_next": "epsilon_committed",
        "epsilon_next_value": "epsilon_committed_value",
        "probability": "probability_committed",
    }
    return {names.get(name, name): value for name, value in row.items()}


def _number(name: str) -> int:
    return int(name[1:])


def _question(failure: str) -> str:
    """r3.q318.a5 → r3.q318."""
    return failure[: failure.rindex(".")]


def _sum(rows: list[Row], name: str) -> int:
    return sum(row[name] for row in rows)


def _outcomes(groups: list[Row]) -> Row:
    every, none = (
        sum(one["passes"] == right for one, right in zip(groups, of, strict=True))
        for of in ([one["rollouts"] for one in groups], [0] * len(groups))
    )
    return {
        "groups": len(groups),
        "all_passed": every,
        "contrast": len(groups) - every - none,
        "all_failed": none,
        "rollouts": _sum(groups, "rollouts"),
        "passes": _sum(groups, "passes"),
    }


@dataclass
class Figures:
    """What screens should show of a run, with the rounds that count."""

    rounds: dict[int, Row]
    """Of the committed rounds that count."""
    steps: dict[tuple[int, int], list[int]]
    """By round and step: groups, all passed, all failed, rollouts, passes."""
    causes: dict[str, list[int]]
    """Failures, groups with some, their rollouts and passes."""
    prompts: dict[str, list[int]]
    """By digest: rollouts, passes, failures without a cause."""
    tags: dict[str, list[int]]
    questions: list[str]
    failures: set[str]
    """That count, as the questions do."""
    cause_of: dict[str, str]
    again: tuple[float, float, float | None] | None
    """Mean pass rate of prompts that came back, the first and the last time, and the error of its change."""
    dropped: int


def figures(log: Iterable[Any]) -> Figures:
    oracle = Oracle(log)
    pairs = oracle.changes()
    again = None
    if pairs:
        error = stdev(b - a for a, b in pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else None
        again = fmean(a for a, _ in pairs), fmean(b for _, b in pairs), error

    def numbers(row: Row, names: str) -> list[int]:
        return [row[name] for name in names.split()]

    return Figures(
        rounds={row["round"]: _shown(row) for row in oracle._that_count(oracle.round_summary())},
        steps={
            (row["round"], row["step"]): numbers(row, "groups all_passed all_failed rollouts passes")
            for row in oracle.v_step()
        },
        causes={
            row["cause_id"]: numbers(row, "failures questions responses first")
            for row in oracle.v_cause_rate()
        },
        prompts={row["question"]: numbers(row, "rollouts passes without_cause") for row in oracle.v_prompt()},
        tags={row["tag"]: numbers(row, "groups rollouts passes") for row in oracle.v_tag()},
        questions=[row["question_id"] for row in oracle.v_candidate()],
        failures={row["failure_id"] for row in oracle.v_failure()},
        cause_of={
            name: cause
            for name, cause in (
                {
                    name: cause
                    for number in oracle.counting.values()
                    for name, cause in oracle.settled(number).items()
                }
                | oracle._moved_to()
            ).items()
            if cause is not None
        },
        again=again,
        dropped=sum(b < a for a, b in pairs),
    )


def _shown(row: Row) -> Row:
    """A round as `runs show` has it."""
    judged = row["failures_judged"] or None
    names = ("failures", "candidates", "kept", "observed", "created", "rollouts", "passes")
    return {name: row[name] for name in names} | {
        "verdicts": {name: row[name] for name in VERDICTS if row[name]},
        "promoted": sorted(row["promoted_causes"]),
        "reactivated": sorted(row["reactivated_causes"]),
        "labels_true": row["labels_true"] / row["labels_judged"] if row["labels_judged"] else None,
        "failures_judged": judged,
        "against_false_labels": row["against_false_labels"] if judged else None,
    }
