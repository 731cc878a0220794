"""The configuration as frozen models: defaults are the paper's, and each field says why it exists.

Sources: the paper's tables of GRPO settings, co-evolution settings and thresholds (appendix "Training
Hyperparameters"); where the paper is silent, the README's fidelity table.

Long, but one file: two thirds are descriptions of the fields, and the pages of settings follow its order.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveFloat, model_validator

from diagevo.config.method import (
    FilterConfig,
    IngestConfig,
    MemoryConfig,
    RoundConfig,
    ScheduleConfig,
    Section,
)
from diagevo.text.redaction import holds_secret, is_variable


def is_url(text: str) -> bool:
    """Whether it names a service: without a scheme a client's error would be unclear."""
    return text.startswith(("http://", "https://"))


def _an_address(url: str | None) -> str | None:
    """A configuration is shown and stored, so a URL in it must not contain a secret."""
    if url is not None and not is_url(url):
        raise ValueError("a URL begins with http:// or https://")
    if url is not None and ("@" in url or holds_secret(url)):
        raise ValueError("a URL in a configuration must not carry a name, password or key; use api_key_env")
    return url


def _a_name(variable: str) -> str:
    if not is_variable(variable):
        raise ValueError("the name of an environment variable is needed, never the key itself")
    return variable


Endpoint = Annotated[str | None, AfterValidator(_an_address)]
KeyVariable = Annotated[str, AfterValidator(_a_name)]
"""The *name* of an environment variable: secrets never go into a configuration."""
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]


class RewardConfig(Section):
    repetition_weight: float = Field(
        default=1.0, ge=0, description="λ of the challenger's repetition penalty."
    )
    cluster_distance: float = Field(
        default=0.5, gt=0, le=1, description="Questions closer than this share a cluster."
    )
    bleu: Literal["kernel", "sacrebleu"] = Field(
        default="kernel",
        description="Who computes BLEU. sacrebleu is the reference: the same clusters, slowly.",
    )


class DiagnosisConfig(Section):
    enabled: bool = Field(
        default=True,
        description="If false, failures are recorded but not diagnosed, and the memory does not grow.",
    )
    workers: int | None = Field(
        default=None,
        ge=1,
        description="Extractions in flight at once; None: what a vLLM on this machine has room for, or 16.",
    )
    failures_per_question: int | None = Field(
        default=None, ge=1, description="Cap on diagnosed failures per question."
    )
    skip_truncated: bool = Field(default=False, description="Leave out failures that were cut off.")
    retries: int = Field(
        default=2, ge=0, description="Retries after an unreadable reply, with the error shown to the model."
    )
    trajectory_characters: int = Field(
        default=12000, ge=200, description="Longer trajectories are cut in the middle."
    )
    max_calls: int | None = Field(
        default=None, ge=1, description="Stop safely after this many calls in a run."
    )
    max_tokens: int | None = Field(
        default=None, ge=1, description="Stop safely after this many tokens in a run."
    )


class AbsoluteZeroConfig(Section):
    """Tasks about programs, for the method of that name; the defaults are those of its release."""

    shown: int = Field(default=6, ge=1, description="Past tasks shown in a prompt for a new one.")
    inputs: int = Field(
        default=10,
        ge=2,
        le=16,
        description="Inputs of a program that is to be found; the solver sees the first half.",
    )
    buffer: int = Field(
        default=16384, ge=1, description="The newest tasks, from which the shown ones are drawn."
    )


class DarcConfig(Section):
    """Questions from documents by difficulty, for the method of that name."""

    questioner_rounds: int = Field(
        default=3,
        ge=1,
        description="This many first rounds train only the challenger; after that it is frozen, and the "
        "solver trains.",
    )
    near: float = Field(
        default=0.6,
        ge=-1,
        le=1,
        description="If two questions of a pool have this cosine or more, one is left out.",
    )


class GRPOConfig(Section):
    """Settings of one policy's GRPO phase. Equal for both roles except for the number of steps."""

    max_steps: int = Field(ge=0, description="Maximum optimizer steps per round.")
    batch_questions: int = Field(
        default=256, ge=1, description="Prompts per step; completions are this times group."
    )
    group: int = Field(default=8, ge=1, description="G: completions per prompt.")
    advantage: Literal["group", "part"] = Field(
        default="group",
        description="What a reward is compared with. group: the other completions of its prompt; part: all "
        "completions of the step with the same kind of task, weighted by their tokens (REINFORCE++), so "
        "that a group of 1 is enough.",
    )
    learning_rate: float = Field(default=1e-6, gt=0, description="AdamW, constant schedule.")
    weight_decay: float = Field(default=1e-2, ge=0, description="AdamW's decoupled decay.")
    beta: float = Field(
        default=1e-2, ge=0, description="Weight of the KL penalty to the phase's starting weights."
    )
    clip_low: float = Field(default=0.2, gt=0, lt=1, description="Lower clip of the probability ratio.")
    clip_high: float = Field(default=0.3, gt=0, description="Upper clip of the probability ratio.")
    loss_type: Literal["dapo", "grpo", "dr_grpo", "cispo"] = Field(
        default="dapo",
        description="What a step's loss is divided by. dapo: its tokens; grpo: completions, each "
        "divided by its own tokens; dr_grpo: completions, each divided by the longest allowed. cispo: as "
        "dapo, but a ratio only weights its token, at most 1 + clip_high, without its own gradient.",
    )
    importance_sampling_level: Literal["token", "sequence"] = Field(
        default="token",
        description="The unit of a probability ratio: a token, or a completion (GSPO).",
    )
    advantage_scale: Literal["std", "none"] = Field(
        default="std",
        description="What a group's rewards, minus their mean, are divided by: their standard deviation, "
        "or nothing (Dr. GRPO).",
    )
    sampler_correction: float | None = Field(
        default=None,
        gt=0,
        description="Truncated importance sampling (TIS): a token is weighted by its probability in the "
        "trainer over that in the sampler, at most this; None: off.",
    )
    updates: int = Field(
        default=1,
        ge=1,
        description="Optimizer updates per step: its completions are split into this many parts, and ratios "
        "are relative to the policy that drew them.",
    )
    delta: float | None = Field(
        default=3.0,
        gt=0,
        description="Upper bound of a probability ratio where clipping does not bound it; None: off.",
    )
    max_grad_norm: float = Field(default=1.0, gt=0, description="Gradient clipping.")
    micro_batch: int = Field(
        default=8,
        ge=1,
        description="Completions of full length that a device holds at once, and more shorter ones: "
        "their tokens are a micro-batch's budget. Affects memory, not results.",
    )
    save_steps: int = Field(
        default=1, ge=1, description="Steps between resumable checkpoints inside a phase."
    )

    @model_validator(mode="after")
    def _group_to_compare(self) -> "GRPOConfig":
        if self.group == 1 and self.advantage == "group":
            raise ValueError("group: 1 has nothing to compare with; at least 2, or advantage: part")
        return self


class WarmStartConfig(Section):
    """Supervised steps before round 1, for a model that does not know the format of the answers yet."""

    documents: str | None = Field(
        default=None,
        description="JSONL of chat turns (`messages`, as TRL takes them), or `builtin:arithmetic`; None: "
        "no warm start. Challenger and solver must start from one model.",
    )
    steps: int = Field(default=60, ge=1, description="Optimizer steps.")
    batch_documents: int = Field(default=16, ge=1, description="Documents per step.")
    learning_rate: float = Field(default=2e-4, gt=0, description="AdamW, falling linearly to 0.")
    micro_batch: int = Field(
        default=16, ge=1, description="Documents that a device holds at once; affects memory, not results."
    )
    save_steps: int = Field(default=1, ge=1, description="Steps between resumable checkpoints.")


class TrainingConfig(Section):
    """Shared by both policies' phases: which weights train, and what ends a phase that goes wrong."""

    lora: int | None = Field(
        default=None,
        ge=1,
        description="Rank of LoRA adapters, for when training all weights does not fit; None "
        "trains all weights.",
    )
    first_kl: float = Field(
        default=0.01,
        gt=0,
        description="Maximum KL at a phase's first step, where policy and reference are equal: "
        "rounding in bfloat16 gives a few ten-thousandths, a wrong reference whole units.",
    )
    sampling_gap: float = Field(
        default=0.5,
        gt=0,
        description="Maximum log-prob gap between sampler and trainer, averaged over a step: "
        "rounding gives hundredths, other weights whole units.",
    )


class SamplingConfig(Section):
    temperature: float = Field(default=1.0, gt=0, description="Temperature of rollouts and votes.")
    top_p: float = Field(default=0.99, gt=0, le=1, description="Top-p (nucleus) of rollouts and votes.")
    max_new_tokens: int = Field(
        default=4096, ge=1, description="Longer responses are cut and marked truncated."
    )
    max_prompt_tokens: int = Field(default=2048, ge=1, description="Longer prompts are refused.")
    chat_template_kwargs: dict[Identifier, bool | int | float | str] = Field(
        default={},
        description="Arguments of the policies' chat template, e.g. {enable_thinking: false}: a hybrid model "
        "otherwise thinks, and its answers are cut off.",
    )


class HardwareConfig(Section):
    """Where the policies train. The defaults fit a laptop; a profile for GPUs sets its own."""

    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="auto uses a GPU if there is one."
    )
    cluster: Literal["local", "ray"] = Field(
        default="local", description="This machine, or the nodes of a Ray cluster (`ray` extra)."
    )
    restarts: int = Field(
        default=3,
        ge=0,
        description="How often a stage resumes by itself after a node of the cluster is lost.",
    )
    processes: int = Field(
        default=1,
        ge=1,
        description="Processes that train and sample, one per GPU; with Ray, on all nodes together. On one "
        "machine CUDA_VISIBLE_DEVICES selects the GPUs.",
    )
    precision: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto",
        description="Numbers of the arithmetic; weights that train stay float32. auto: bfloat16 on a GPU, "
        "float32 on a CPU, where bfloat16 is faster only with AMX or AVX512-BF16. float16, on a GPU alone, "
        "sees smaller updates and scales the loss. vLLM uses the same.",
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        description="CPU threads per process; None: torch decides on a CPU, and beside "
        "GPUs a machine's processes share its cores.",
    )
    rank_timeout: float = Field(
        default=1800.0,
        gt=0,
        description="Seconds that a rank waits for the others before the run ends; four times as "
        "long if no rank responds.",
    )
    accelerate_config: Path | None = Field(
        default=None,
        description="`fsdp`, or a file of `accelerate launch` with FSDP2 or without sharding.",
    )
    fsdp_size: int | None = Field(
        default=None,
        ge=2,
        description="Ranks that share one copy of the training state; None: all. As many as a node has "
        "GPUs: layers are gathered within it, and only gradients go between nodes (HSDP).",
    )
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = Field(
        default="auto",
        description="auto: FlashAttention 2 on a GPU if flash-attn or `kernels` provides it, else sdpa.",
    )
    colocate_vllm: bool = Field(
        default=False,
        description="Rollouts, votes, candidates and validation by vLLM inside the training processes "
        "(`vllm` extra): one per process, for the whole run.",
    )
    vllm_memory: float = Field(
        default=0.3,
        gt=0,
        lt=1,
        description="Share of a GPU for vLLM. It sleeps during updates; with "
        "training.lora it stays awake, because it holds the base that both use.",
    )
    report_to: tuple[Literal["tensorboard", "trackio", "wandb"], ...] = Field(
        default=(), description="tensorboard (files in the run's folder), trackio or wandb, through TRL."
    )
    rows_at_once: int = Field(
        default=256,
        ge=1,
        description="Completions that an engine decodes at once; affects memory, not results.",
    )


class PolicyRole(Section):
    """The challenger or the solver: a model that trains."""

    model: str = Field(
        description="A folder, a hub id, `builtin:arithmetic`, or `builtin:arithmetic-methods`, which reads "
        "every method's prompts."
    )
    revision: str | None = Field(default=None, description="Commit of a hub id.")


class DiagnosticianRole(Section):
    engine: Literal["openai", "local", "rules:arithmetic", "rules:placebo"] = Field(
        description="A served language model, grouping by similarity (ingested runs), the world's rules, or"
        " causes drawn at random (control)."
    )
    model: str = Field(default="Qwen/Qwen3-4B-Instruct-2507", description="The model's name at the endpoint.")
    base_url: Endpoint = Field(
        default=None, description="OpenAI-compatible endpoint, e.g. http://127.0.0.1:8000/v1"
    )
    api_key_env: KeyVariable = Field(
        default="OPENAI_API_KEY", description="Environment variable that holds the key."
    )
    timeout: float = Field(
        default=120.0,
        gt=0,
        description="Seconds without an answer after which a request is retried.",
    )
    max_tokens: int = Field(default=1024, ge=16, description="Longest reply.")
    structured_output: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Ask the server for JSON that follows a schema; auto detects whether it can.",
    )


class EmbedderRole(Section):
    engine: Literal["openai", "sentence-transformers", "hashing"] = Field(
        description="Where vectors come from."
    )
    model: str = Field(
        default="text-embedding-v4", description="Name or folder; the thresholds depend on the model."
    )
    dimension: int = Field(default=1024, ge=2, description="Length of a vector.")
    base_url: Endpoint = Field(default=None, description="OpenAI-compatible endpoint.")
    api_key_env: KeyVariable = Field(
        default="OPENAI_API_KEY", description="Environment variable that holds the key."
    )
    timeout: float = Field(
        default=60.0,
        gt=0,
        description="Seconds without an answer after which a request is retried.",
    )


class JudgeRole(Section):
    """Judges whether a question is related to its document, for methods that make questions from
    documents."""

    engine: Literal["openai", "rules:arithmetic"] | None = Field(
        default=None,
        description="A served language model, or the rule of the arithmetic world; None: no judge, so that "
        "a method that needs one is refused.",
    )
    model: str = Field(default="Qwen/Qwen3-4B-Instruct-2507", description="The model's name at the endpoint.")
    base_url: Endpoint = Field(default=None, description="OpenAI-compatible endpoint.")
    api_key_env: KeyVariable = Field(
        default="OPENAI_API_KEY", description="Environment variable that holds the key."
    )
    timeout: float = Field(
        default=120.0,
        gt=0,
        description="Seconds without an answer after which a request is retried.",
    )


class AnchorsConfig(Section):
    """Human-labelled items, for the method `r-few`."""

    file: str | None = Field(
        default=None, description="JSONL of question and answer, or `builtin:arithmetic`; r-few needs one."
    )
    shown: int = Field(
        default=5, ge=1, description="A prompt shows zero to this many of them, each number equally likely."
    )
    practised: int | None = Field(
        default=None, ge=0, description="How many of them join the pool of a round; None: all."
    )
    weight: float = Field(
        default=2.0, ge=0, description="λ: what a right answer to one earns in addition to 1 (R-Few's)."
    )


class CorpusConfig(Section):
    """Documents shown to a challenger, for methods that make questions from them."""

    file: str | None = Field(
        default=None,
        description="JSONL or Parquet of documents: `text`, and perhaps `kind` (mathematics or general); or "
        "`builtin:arithmetic`.",
    )
    documents: int | None = Field(
        default=None, ge=1, description="Only this many first documents of each kind; None: all."
    )
    characters: int = Field(default=20000, ge=1, description="A longer document keeps its beginning.")
    mathematics: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="How often a mathematics document is drawn, if the file has both kinds.",
    )


class RolesConfig(Section):
    challenger: PolicyRole
    solver: PolicyRole
    diagnostician: DiagnosticianRole
    embedder: EmbedderRole
    judge: JudgeRole = JudgeRole()


class ValidationConfig(Section):
    questions: str | None = Field(
        default=None,
        description="JSONL of question and answer, `builtin:arithmetic`, or `benchmark:` with its name.",
    )
    data: str | None = Field(
        default=None, description="Folder with the benchmark's files; without one it is read from the hub."
    )
    limit: int | None = Field(
        default=None, ge=1, description="Use only this many questions, spread over the set."
    )
    metric: Literal["greedy", "mean_at_k"] = Field(
        default="greedy", description="Score that selects the best checkpoint; ties go to the earlier round."
    )
    samples: int = Field(
        default=8, ge=1, description="Samples per question for the mean at the rollouts' temperature."
    )
    temperatures: tuple[PositiveFloat, ...] = Field(
        default=(),
        description="Also sample each checkpoint and the base model at these lower temperatures, to show how "
        "much of a gain is sharpening.",
    )


class Config(Section):
    """The whole configuration of a run."""

    profile: str = Field(default="embedded", description="The profile that supplied the defaults.")
    method: Literal["diagevo", "r-zero", "r-few", "absolute-zero", "darc", "spice"] = Field(
        default="diagevo",
        description="A method other than diagevo replaces the profile's values with its own, except for "
        "keys that you set yourself.",
    )
    seed: int = Field(
        default=0, ge=0, description="Seed of all random draws; the same seed gives the same run."
    )
    prompts: str | None = Field(
        default=None,
        description="Folder whose templates replace the built-in prompts, or `builtin:arithmetic`.",
    )
    world: Literal["arithmetic"] | None = Field(
        default=None, description="A world that knows the truth: checks questions and measures labels."
    )
    round: RoundConfig = RoundConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    filter: FilterConfig = FilterConfig()
    reward: RewardConfig = RewardConfig()
    anchors: AnchorsConfig = AnchorsConfig()
    corpus: CorpusConfig = CorpusConfig()
    memory: MemoryConfig = MemoryConfig()
    diagnosis: DiagnosisConfig = DiagnosisConfig()
    ingest: IngestConfig = IngestConfig()
    absolute_zero: AbsoluteZeroConfig = AbsoluteZeroConfig()
    darc: DarcConfig = DarcConfig()
    challenger_grpo: GRPOConfig = GRPOConfig(max_steps=6)
    solver_grpo: GRPOConfig = GRPOConfig(max_steps=12)
    training: TrainingConfig = TrainingConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    sampling: SamplingConfig = SamplingConfig()
    hardware: HardwareConfig = HardwareConfig()
    roles: RolesConfig
    validation: ValidationConfig = ValidationConfig()

    @model_validator(mode="after")
    def _consistent(self) -> "Config":
        hardware, one_model = self.hardware, self.roles.challenger == self.roles.solver
        if self.training.lora is not None and hardware.accelerate_config is not None:
            raise ValueError(
                "training.lora keeps a whole model on each GPU: leave out hardware.accelerate_config"
            )
        if hardware.colocate_vllm and self.training.lora is not None and not one_model:
            raise ValueError(
                "training.lora with hardware.colocate_vllm needs roles.challenger and roles.solver to be one "
                "model: one vLLM answers for both, from the same base"
            )
        if hardware.fsdp_size is not None and hardware.accelerate_config is None:
            raise ValueError(
                "hardware.fsdp_size needs FSDP: set hardware.accelerate_config to fsdp, or fsdp_size to null"
            )
        if hardware.fsdp_size is not None and hardware.processes % hardware.fsdp_size:
            raise ValueError("hardware.processes must be a multiple of hardware.fsdp_size")
        if self.warm_start.documents is not None and not one_model:
            raise ValueError("warm_start needs roles.challenger and roles.solver to be one model")
        if self.method == "r-few":
            if self.anchors.file is None:
                raise ValueError("method r-few needs anchors.file: JSONL of questions with answers")
            if self.schedule.policy != "free":
                raise ValueError("method r-few has no schedule: schedule.policy must be free")
        if self.method == "absolute-zero":
            if self.schedule.policy != "free":
                raise ValueError("method absolute-zero aims at no cause: schedule.policy must be free")
            if self.round.true_labels or self.round.boxed_answers:
                raise ValueError(
                    "method absolute-zero has its labels from the executor: round.true_labels and "
                    "round.boxed_answers must be false"
                )
            if not one_model:
                raise ValueError(
                    "method absolute-zero trains one model: roles.challenger and roles.solver must be one"
                )
        if self.method == "darc":
            if self.corpus.file is None:
                raise ValueError("method darc needs corpus.file: JSONL or Parquet of documents")
            if self.schedule.policy != "free":
                raise ValueError("method darc aims at no cause: schedule.policy must be free")
            if self.round.true_labels or self.round.boxed_answers:
                raise ValueError(
                    "method darc has its labels from the solver with the document in sight: "
                    "round.true_labels and round.boxed_answers must be false"
                )
            if self.roles.judge.engine is None:
                raise ValueError(
                    "method darc needs somebody who says whether a question is related to its document: "
                    "roles.judge.engine openai, with roles.judge.base_url and roles.judge.model"
                )
            if self.darc.questioner_rounds >= self.round.rounds:
                raise ValueError(
                    "darc.questioner_rounds must be below round.rounds: the others train the solver"
                )
        if self.method == "spice":
            if self.corpus.file is None:
                raise ValueError("method spice needs corpus.file: JSONL or Parquet of documents")
            if self.roles.judge.engine is None:
                raise ValueError(
                    "method spice needs somebody who says whether a question is related to its document: "
                    "roles.judge.engine openai, with roles.judge.base_url and roles.judge.model"
                )
            if self.schedule.policy != "free":
                raise ValueError("method spice aims at no cause: schedule.policy must be free")
            if self.round.true_labels or self.round.boxed_answers:
                raise ValueError(
                    "method spice has its labels from the challenger: round.true_labels and "
                    "round.boxed_answers must be false"
                )
            if not one_model:
                raise ValueError(
                    "method spice trains one model: roles.challenger and roles.solver must be one"
                )
        if self.roles.judge.engine == "rules:arithmetic" and self.world != "arithmetic":
            raise ValueError("roles.judge.engine rules:arithmetic is the rule of a world: world: arithmetic")
        if self.round.true_labels and self.world is None:
            raise ValueError("round.true_labels needs a world that knows the truth: world: arithmetic")
        return self
