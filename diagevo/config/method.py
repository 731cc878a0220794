"""The sections that an audit or an ingest also reads, and the base of all sections: separate, so that
neither imports the training settings (`models`)."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    field_validator,
    model_validator,
)

from diagevo.equations.policy import BUILT_IN
from diagevo.text.fractions import fraction


def _to_fraction(value: Any) -> Any:
    """Read 1.6, "1.6" and "8/5" as the exact number that was written: 0.7 is 7/10, not its nearest double."""
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    if isinstance(value, float | int | str):
        try:
            return fraction(str(value))
        except ValueError as error:
            raise ValueError("a number like 0.7 or a fraction like 7/10 is needed, at most 1e308") from error
    return value


def _a_policy(name: str) -> str:
    place, _, wanted = name.rpartition(":")
    if name not in BUILT_IN and not (place.endswith(".py") and wanted.isidentifier()):
        raise ValueError(f"one of {', '.join(BUILT_IN)} is needed, or a class: file.py:Class")
    return name


Ratio = Annotated[
    Fraction,
    BeforeValidator(_to_fraction),
    PlainSerializer(str, return_type=str),
]


class Section(BaseModel):
    """Base of all sections: frozen, and a misspelt key is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
        defer_build=True,  # built at first use: most commands read three sections
    )

    @field_validator("*")
    @classmethod
    def _of_64_bits(cls, value: Any) -> Any:
        """The limit of the log's JSON."""
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError("an integer of at most 18 digits is needed")
        return value


def unknown_keys(values: Any, section: type[Section], above: str = "") -> list[str]:
    """The keys in a section's values that are not settings, dotted."""
    if not isinstance(values, Mapping):
        return []
    found: list[str] = []
    for key, value in cast("Mapping[str, Any]", values).items():
        field = section.model_fields.get(key)
        if field is None:
            found.append(f"{above}{key}")
        elif isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            found += unknown_keys(value, field.annotation, f"{above}{key}.")
    return found


class RoundConfig(Section):
    rounds: int = Field(
        default=5, ge=1, description="Rounds of co-evolution; the paper's main runs use five."
    )
    candidates: int = Field(
        default=8000, ge=1, description="Size of the fresh candidate pool of a round (R-Zero's)."
    )
    responses: int = Field(default=12, ge=1, description="N: responses per candidate, for the vote.")
    challenger_votes: int = Field(
        default=10, ge=1, description="Votes per question while the challenger trains."
    )
    keep_checkpoints: int | None = Field(
        default=None,
        ge=1,
        description="How many of the latest rounds keep their weights, besides the best solver; "
        "None keeps all.",
    )
    train_challenger: bool = Field(default=True, description="False freezes the challenger (ablation).")
    true_labels: bool = Field(
        default=False,
        description="Train the solver on the world's true answers instead of majorities: an "
        "upper bound (control), only in a world that knows them.",
    )
    boxed_answers: bool = Field(
        default=False,
        description="The challenger must also box its own answer, as in R-Zero; it is not used.",
    )


class ScheduleConfig(Section):
    policy: Annotated[str, AfterValidator(_a_policy)] = Field(
        default="frequency",
        description="How ε is set: `frequency` is Equation 1; `free`, `targeted` and `fixed` hold it "
        "(ablations). `file.py:Class` is a policy of your own, which draws causes too.",
    )
    k: Ratio = Field(default=Fraction(1, 2), gt=0, description="Balance of the two modes: equal at z = k.")
    fixed_epsilon: Ratio | None = Field(default=None, ge=0, le=1, description="ε of the `fixed` policy.")
    stitching: Literal["node", "random", "off"] = Field(
        default="node",
        description="Where the Mastered partner comes from: the same node, anywhere, or none. A pair from "
        "anywhere has a separate prompt, which names both areas.",
    )

    @model_validator(mode="after")
    def _fixed_needs_epsilon(self) -> "ScheduleConfig":
        if (self.policy == "fixed") != (self.fixed_epsilon is not None):
            raise ValueError("schedule.fixed_epsilon is needed with, and only with, schedule.policy: fixed")
        return self


class FilterConfig(Section):
    variant: Literal["double", "absolute", "none"] = Field(
        default="double", description="Both confidence constraints, the absolute one alone, or neither."
    )
    p_low: Ratio = Field(
        default=Fraction(1, 4), ge=0, le=1, description="Below this share a question is too hard."
    )
    p_high: Ratio = Field(default=Fraction(3, 4), ge=0, le=1, description="Above this share it is too easy.")
    tau: Ratio = Field(
        default=Fraction(8, 5), ge=1, description="The majority must lead the second by this ratio."
    )

    @model_validator(mode="after")
    def _low_before_high(self) -> "FilterConfig":
        if self.p_low > self.p_high:
            raise ValueError("filter.p_low must not be above filter.p_high")
        return self


class MemoryConfig(Section):
    theta_up: Ratio = Field(
        default=Fraction(7, 10), ge=0, le=1, description="Mean p1 at which a cause is Mastered."
    )
    promotion_questions: int = Field(
        default=1, ge=1, description="Minimum number of targeted questions for a promotion."
    )
    state_updates: bool = Field(default=True, description="False keeps every cause Active (ablation).")
    theta_dup: float = Field(
        default=0.5, ge=-1, le=1, description="Cosine above which a cause may be a duplicate."
    )
    theta_merge: float = Field(
        default=0.5, ge=-1, le=1, description="Cosine above which two nodes may be one."
    )
    shortlist: int = Field(default=5, ge=1, description="K: nodes shown when a cause is assigned.")
    duplicate_candidates: int = Field(
        default=20, ge=1, description="Maximum number of causes shown when duplicates are judged."
    )
    node_embedding: Literal["label", "centroid"] = Field(
        default="label", description="A node's vector: its label's, or the mean of its causes'."
    )
    index: Literal["auto", "lancedb"] = Field(
        default="auto",
        description="auto: numpy finds similar causes, LanceDB from 50,000 on; lancedb: LanceDB always.",
    )


class IngestConfig(Section):
    """How another trainer's rollouts are read (`diagevo ingest`). Not used by our own trainer."""

    steps_per_round: int = Field(
        default=12,
        ge=1,
        description="Training steps per round; the paper's solver takes up to twelve.",
    )
    pass_at: float = Field(
        default=0.5,
        description="The lowest reward that is a pass: with rewards 0 and 1, or -1 and 1, the upper one.",
    )
    reward: str | None = Field(
        default=None, description="Field of the reward, or a sum (a+0.1*b); None uses the format's own."
    )
    all_failed: bool = Field(
        default=False,
        description="Diagnose groups in which every response failed too, against the known answer.",
    )
    map: dict[str, str] | None = Field(
        default=None,
        description="Paths of a plain rollout's fields in a row; None: under their names.",
    )
