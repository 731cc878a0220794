"""The diagnostician that a configuration names, for a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagevo.errors import ConfigError

if TYPE_CHECKING:
    from diagevo.config.models import Config
    from diagevo.diagnosis.diagnostician import Diagnostician
    from diagevo.memory.log.artifacts import Artifacts


def check_rules(config: "Config", run: str, *, played: bool) -> None:
    """Raise ConfigError where the rules of a world are to name the causes of a run that was not `played` in
    it: to them every foreign failure is a slip."""
    engine = config.roles.diagnostician.engine
    if engine.startswith("rules:") and not played:
        raise ConfigError(
            f"{engine} names causes of questions of its own world, and run {run} was not played there",
            hint=f"name a served model, once: diagevo diagnose --run {run} --model M --base-url URL;"
            " or group by likeness: --local",
        )


def diagnostician_of(config: "Config", artifacts: "Artifacts", **given: Any) -> "Diagnostician":
    """`artifacts` keep its replies. Further words go to a language model alone."""
    role = config.roles.diagnostician
    if role.engine != "openai":
        from diagevo.arithmetic.diagnostician import by_rules

        return by_rules(role.engine, config.seed)
    from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician

    settings = given.pop("settings", config.diagnosis)
    own = config.prompts is not None and config.prompts != "builtin:arithmetic"
    prompts = Path(str(config.prompts)).expanduser() if own else None
    return OpenAIDiagnostician(role, settings, artifacts, prompts, **given)
