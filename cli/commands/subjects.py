"""What an evaluation measures: a checkpoint of a run, a model folder, or a model behind an endpoint."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from diagevo.errors import ConfigError, NotFoundError

from ..call import CommandContext

if TYPE_CHECKING:
    from diagevo.evaluation.evaluate import EvaluatedModel
    from diagevo.memory.history import History
    from diagevo.progress import StopFlag
    from diagevo.sampling.sampler import Sampler


def rounds_named(history: "History", named: str) -> list[int]:
    """`3`, `1,3`, `all` (0 and every committed round) or `best` (highest validation accuracy)."""
    from diagevo.memory.read.round_figures import best_round

    committed = [commit.round for commit in history.commits]
    if named == "all":
        return [0, *committed]
    if named == "best":
        if (best := best_round(history)) is None:
            raise NotFoundError(
                f"no round of run {history.run_id} has been validated", hint="name a round: --round N"
            )
        return [best]
    try:
        rounds = [int(part) for part in named.split(",")]
    except ValueError as error:
        raise ConfigError(f"not a round: {named}", hint="give numbers, `all` or `best`") from error
    for number in rounds:
        if number:
            history.commit(number)
    return rounds


def solvers_named(history: "History", named: str) -> list[int]:
    """The rounds whose solver is measured. Raises ConfigError for a run whose solver is not here."""
    if history.ingested is not None:
        raise ConfigError(
            f"run {history.run_id} was ingested: its model was trained elsewhere and is not here",
            hint="measure a model folder, or a served model: --model MODEL --base-url URL",
        )
    return rounds_named(history, named)


@contextmanager
def checkpoint(
    call: CommandContext, history: "History", round: int, stop: "StopFlag | None" = None
) -> Iterator["EvaluatedModel"]:
    """A run's solver after a round; 0 is the model it started from. `stop` also ends its loading and
    sampling."""
    from diagevo.config.loading import of_run
    from diagevo.evaluation.evaluate import EvaluatedModel, Subject
    from diagevo.loop.roles import Roles
    from diagevo.sampling.model_folder import sha256_of

    config = of_run(call.config_in_log(history, history.configuration().config), history.run_id).config
    left = history.policies(["solver"], round)
    with Roles(config, history.folder / "logs", stop=stop) as roles:
        folder = history.folder / left[-1][1].path if left else roles.solver
        if not folder.is_dir():
            raise NotFoundError(
                f"the solver of round {round} is gone: {folder}",
                hint="round.keep_checkpoints removes old ones; evaluate another round",
            )
        name = f"{history.run_id}/{left[-1][1].path}" if left else config.roles.solver.model
        with closing(roles.open_sampler(folder)) as sampler:
            yield EvaluatedModel(
                sampler,
                roles.templates,
                Subject(name, sha256_of(folder, roles.stop), history.run_id, round),
                config.sampling.top_p,
                config.sampling.max_new_tokens,
            )


@contextmanager
def model(
    name: str,
    base_url: str | None,
    key_env: str,
    prompts: Path | None,
    max_new_tokens: int | None,
    stop: "StopFlag | None" = None,
) -> Iterator["EvaluatedModel"]:
    """A model that belongs to no run: of the arithmetic world, a folder, or a name at an endpoint."""
    from diagevo.evaluation.evaluate import EvaluatedModel, Subject
    from diagevo.selfplay.questions import PromptTemplates

    templates = PromptTemplates.load(prompts)
    longest = 4096 if max_new_tokens is None else max_new_tokens
    if base_url is not None:
        sampler, revision = endpoint(name, base_url, key_env, stop), base_url
    else:
        from diagevo.planning.shapes import SMALL, config_file
        from diagevo.progress import StopFlag
        from diagevo.sampling.model_folder import check_model_folder, sha256_of
        from diagevo.sampling.transformers_sampler import TransformersSampler

        folder = Path(name).expanduser()
        if name in SMALL and (file := config_file(name)) is not None:
            from diagevo.arithmetic import PROMPTS

            folder, templates = file.parent, PromptTemplates.load(prompts or PROMPTS)
            if max_new_tokens is None:
                from diagevo.config.loading import resolve

                longest = resolve(profile="embedded").config.sampling.max_new_tokens
        sampler = TransformersSampler(check_model_folder(folder), stop=stop)
        revision = sha256_of(folder, StopFlag() if stop is None else stop)
    try:
        yield EvaluatedModel(sampler, templates, Subject(name, revision), 0.99, longest, base_url is not None)
    finally:
        sampler.close()


def endpoint(name: str, base_url: str, key_env: str, stop: "StopFlag | None" = None) -> "Sampler":
    """A model behind an OpenAI-compatible endpoint. The key comes only from the environment."""
    from diagevo.config.models import is_url
    from diagevo.sampling.openai_sampler import OpenAISampler
    from diagevo.sampling.service import Service
    from diagevo.text.redaction import holds_secret, is_variable

    if not is_variable(key_env):
        raise ConfigError(
            "the name of an environment variable is needed, never the key itself",
            hint="export KEY=…, then name it: --key-env KEY (--judge-key-env for a judge)",
        )
    if holds_secret([name, base_url]):
        raise ConfigError(
            "a model's name and its endpoint's URL must not hold a password, key or token:"
            " they are stored with the results",
            hint=f"put the key into the environment: {key_env}",
        )
    if not is_url(base_url):
        raise ConfigError(f"{base_url} is not a URL", hint="it begins with http:// or https://")
    return OpenAISampler(Service(base_url, key_env=key_env), name, stop=stop)
