"""Checks what an install, a machine or a configuration lacks for an audit, a run or an evaluation, with
fixes."""

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from diagevo.config.models import Config, HardwareConfig
from diagevo.config.resources import ClusterNode, describe_nodes, gpus_of, on_gpus, on_this_machine, refusal
from diagevo.errors import DiagEvoError
from diagevo.executing.executor import WALLS, PythonExecutor
from diagevo.loop.roles import BENCHMARK, validation_of
from diagevo.memory.log.check import check as check_database
from diagevo.memory.log.database import Database
from diagevo.memory.log.location import shown
from diagevo.memory.log.log import Log
from diagevo.memory.log.migrate import prepare
from diagevo.memory.places import runs_folder
from diagevo.planning.disk import disk_bytes, gigabytes
from diagevo.planning.footprint import (
    MEMORY_FRACTION,
    SAME_SHAPE,
    gpu_memory_plan,
    host_memory_bytes,
    low_concurrency,
    memory_advice,
    shape_mismatch,
    shapes_of,
)
from diagevo.planning.shapes import SMALL, config_file
from diagevo.private import open_to_others
from diagevo.sampling.model_folder import check_model_folder
from diagevo.text.redaction import key_from

Purpose = Literal["audit", "train", "eval"]
State = Literal["ok", "warn", "missing"]

CORE = ("sqlmodel", "sqlalchemy", "alembic", "pydantic", "numpy", "openai")
EVALUATION = ("math-verify", "scipy")
"""The extra `eval`, which training needs too."""
TRAINING = {
    "torch": "2.13.0",
    "transformers": "5.17.0",
    "trl": "1.16.0",
    "accelerate": "1.15.0",
    "datasets": "5.2.0",
}
"""With the versions that were solved together and tested (constraints.txt)."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check."""

    name: str
    state: State
    found: str
    fix: str = ""
    """What to do or to run; empty if nothing is needed."""


def run_checks(
    purpose: Purpose, *, database: str, home: Path, configured: Callable[[], Config]
) -> list[Check]:
    """Checks everything that `purpose` needs. Nothing is changed.

    `database` is a URL or a file, `home` the folder of the runs. `configured` reads the configuration, only
    for train and eval; a DiagEvoError that it raises becomes a failed check.
    """
    found = [*_versions(purpose), *_store(database, home)]
    if purpose == "audit":
        return found
    found += _stack()
    try:
        config = configured()
    except DiagEvoError as error:
        return [*found, Check("configuration", "missing", error.message, error.hint or "")]
    if config.hardware.cluster == "local":
        found += _devices(config)
    found += [*_models(config), *_services(config), *_thresholds(config)]
    if purpose == "train":
        found += [*_validation(config), *_executor(config), *_cluster(config), *_room(config, home)]
    return found


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _versions(purpose: Purpose) -> Iterator[Check]:
    python = ".".join(map(str, sys.version_info[:3]))
    last, tested = ((3, 13), "3.11 to 3.13") if purpose == "train" else ((3, 14), "3.11 to 3.14")
    right = (3, 11) <= sys.version_info[:2] <= last
    yield Check("python", "ok" if right else "warn", python, "" if right else f"tested with {tested}")
    yield Check("diagevo", "ok", _installed("diagevo") or "not installed")
    absent = [name for name in CORE if _installed(name) is None]
    if absent:
        yield Check("core packages", "missing", f"not installed: {', '.join(absent)}", "pip install diagevo")
    else:
        yield Check("core packages", "ok", f"all {len(CORE)} installed")


def _store(location: str, home: Path) -> Iterator[Check]:
    database = Database(location)
    where = shown(database.url)
    try:
        if database.file is not None and not database.file.exists():
            yield Check("database", "warn", f"none yet at {where}", "diagevo init")
        else:
            prepare(database, create=False)
            for found in check_database(database):
                state = "missing" if not found.ok else "warn" if found.fix else "ok"
                yield Check(f"database: {found.check}", state, found.detail, found.fix)
            if opened := [f for f in _folders(database) if open_to_others(f)]:
                again = shlex.join(["chmod", "-R", "go=", *map(str, opened)])
                yield Check("runs", "warn", f"others may read {', '.join(map(str, opened))}", again)
    except DiagEvoError as error:
        yield Check("database", "missing", error.message, (error.hint or "").removeprefix("run: "))
    finally:
        database.close()
    folder = _existing(home)
    if os.access(folder, os.W_OK):
        free = shutil.disk_usage(folder).free
        few = free < 2e9
        fix = "free some space, or set DIAGEVO_HOME to another disk" if few else ""
        yield Check("disk", "warn" if few else "ok", f"{free / 1e9:.1f} GB free at {folder}", fix)
    else:
        yield Check("disk", "missing", f"{folder} cannot be written", "set DIAGEVO_HOME to another folder")


def _folders(database: Database) -> list[Path]:
    """The folders of the runs that have one."""
    folders = [runs_folder(database) / run for run in Log(database).runs()]
    return [folder for folder in folders if folder.is_dir()]


def _existing(folder: Path) -> Path:
    """The folder, or its nearest existing ancestor."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _stack() -> Iterator[Check]:
    for name in EVALUATION:
        found = _installed(name)
        fix = "" if found else "pip install 'diagevo[eval]'"
        yield Check(name, "ok" if found else "missing", found or "not installed", fix)
    for name, tested in TRAINING.items():
        found = _installed(name)
        if found is None:
            fix = "pip install -c constraints.txt 'diagevo[train]'"
            if _installed("torch") is None:
                fix = f"pip install torch=={TRAINING['torch']}, then {fix}"
            yield Check(name, "missing", "not installed", fix)
        elif found.partition("+")[0] != tested:
            fix = f"tested with {tested}: pip install -c constraints.txt 'diagevo[train]'"
            yield Check(name, "warn", found, fix)
        else:
            yield Check(name, "ok", found)


def _devices(config: Config) -> Iterator[Check]:
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    hardware = config.hardware
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = f"{gpus} × {torch.cuda.get_device_name(0)}" if gpus else f"none; {os.cpu_count()} CPU cores"
    if not gpus and hardware.device == "cuda" and torch.version.cuda is None:
        names += ", and torch was built without CUDA"
    wanted = len(gpus_of(hardware)) if hardware.device == "cuda" else 0
    if wanted > gpus:
        fix = f"--set hardware.processes={gpus}" if gpus else "use a machine with GPUs"
        if not gpus:
            fix = f"--set hardware.device=cpu, or {fix}"
        yield Check("GPU", "missing", f"{names}; the configuration wants {wanted}", fix)
    else:
        yield Check("GPU", "ok", names)
    if gpus and hardware.device != "cpu" and not torch.cuda.is_bf16_supported(including_emulation=False):
        yield Check("bfloat16", "missing", "this GPU does not support it", "use an Ampere GPU or a newer one")
    yield _attention(hardware)
    if config.training.lora is not None and _installed("peft") is None:
        yield Check("peft", "missing", "not installed", "pip install 'diagevo[train]'")
    yield from _vllm(config)
    if gpus and hardware.device == "cuda":
        yield _memory(config, min(torch.cuda.get_device_properties(gpu).total_memory for gpu in range(gpus)))


def _attention(hardware: HardwareConfig) -> Check:
    """The attention that training would use (training/attention.py), found without fetching anything."""
    here = next((name for name in ("flash-attn", "kernels") if _installed(name)), None)
    if hardware.attention in ("sdpa", "eager") or (hardware.attention == "auto" and hardware.device == "cpu"):
        asked = hardware.attention
        return Check("attention", "ok", "sdpa" if asked == "auto" else f"{asked}, as configured")
    if here is not None:
        fetched = ", fetched from the hub at first use, else sdpa" if here == "kernels" else ""
        return Check("attention", "ok", f"flash_attention_2 of {here} on a GPU{fetched}")
    fix = "pip install 'diagevo[flash]'"
    if hardware.attention == "auto":
        return Check("attention", "warn", "sdpa: neither flash-attn nor kernels is installed", fix)
    absent = "flash_attention_2 is configured; neither flash-attn nor kernels is installed"
    return Check("attention", "missing", absent, f"{fix}, or --set hardware.attention=auto")


def _vllm(config: Config) -> Iterator[Check]:
    """Is it installed, and can it serve both policies?"""
    if config.hardware.colocate_vllm and importlib.util.find_spec("vllm") is None:
        fix = "pip install 'diagevo[vllm]', or --set hardware.colocate_vllm=false"
        yield Check("vllm", "missing", "not installed", fix)
    if (why := shape_mismatch(config)) is not None:
        yield Check("vLLM", "missing", why, SAME_SHAPE)


def _memory(config: Config, card: int) -> Check:
    """Whether the plan fits GPUs with this many bytes."""
    shapes = shapes_of(config)
    if shapes is None:
        fix = "download the models first: their config.json says what they take"
        return Check("GPU memory", "warn", "unknown", fix)
    found = gpu_memory_plan(config, *shapes)
    fullest = max(found, key=lambda load: (not load.fits(card), load.peak(card)))
    detail = f"{fullest.stage}: {gigabytes(fullest.peak(card))} of {gigabytes(card)}"
    if fullest.fits(card):
        few, _, fix = (low_concurrency(found, card) or "").rpartition(": ")
        return (
            Check("GPU memory", "warn", f"{detail}; {few}", fix) if few else Check("GPU memory", "ok", detail)
        )
    if fullest.peak(card) <= MEMORY_FRACTION * card:
        detail += ", and the share of a vLLM holds no cache for one long sequence"
    return Check(
        "GPU memory",
        "missing",
        detail,
        f"{memory_advice(config)}; diagevo train --plan shows what it then takes",
    )


def _validation(config: Config) -> Iterator[Check]:
    """Whether there is a validation set for choosing the checkpoint. The hub is not queried here."""
    questions = config.validation.questions
    if questions is None:
        fix = f"--set validation.questions={BENCHMARK}validation"
        yield Check("validation", "warn", "none, so no checkpoint is chosen", fix)
    elif questions.startswith(BENCHMARK) and config.validation.data is None:
        fix = "train downloads it before it begins; without a network: --set validation.data=FOLDER"
        yield Check("validation", "warn", f"{questions}, from the hub", fix)
    else:
        try:
            found = validation_of(config)
        except DiagEvoError as error:
            yield Check("validation", "missing", error.message, error.hint or "")
        else:
            size = 0 if found is None else len(found.questions)
            yield Check("validation", "ok", f"{questions}, {size} questions")


def _executor(config: Config) -> Iterator[Check]:
    """What contains a model's programs here, if the method runs any."""
    if config.method != "absolute-zero" or config.world is not None:
        return
    try:
        walls = PythonExecutor(1).walls()
    except DiagEvoError as error:
        yield Check("executor", "missing", error.message, error.hint or "")
        return
    held = "; ".join(words for wall, words in WALLS.items() if wall in walls)
    if walls == frozenset(WALLS):
        yield Check("executor", "ok", held)
        return
    absent = "; ".join(f"not held: {words}" for wall, words in WALLS.items() if wall not in walls)
    fix = "run on Linux as an ordinary user, on a machine that holds nothing else"
    yield Check("executor", "warn", f"{held}; {absent}" if held else absent, fix)


def _cluster(config: Config) -> Iterator[Check]:
    """Whether the cluster is reachable, and has room for the ranks and their models."""
    hardware = config.hardware
    if hardware.cluster == "local":
        here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        yield from _host(config, hardware.processes, here)
        return
    from diagevo.sampling.cluster import connected, nodes_of

    try:
        nodes = nodes_of(connected())
    except DiagEvoError as error:
        yield Check("cluster", "missing", error.message, error.hint or "")
        return
    found = describe_nodes(nodes) or "no nodes"
    if (refused := refusal(hardware, nodes)) is not None:
        yield Check("cluster", "missing", f"{found}; {refused[0]}", refused[1])
        return
    yield from _host(config, *_fullest(hardware, nodes))
    gpus = sum(node.gpus for node in nodes)
    if on_gpus(hardware, nodes) and hardware.processes < gpus:
        idle = f"{found}; {gpus - hardware.processes} GPUs are idle"
        yield Check("cluster", "warn", idle, f"--set hardware.processes={gpus}")
    else:
        yield Check("cluster", "ok", found)


def _fullest(hardware: HardwareConfig, nodes: Sequence[ClusterNode]) -> tuple[int, int]:
    """The node with the least memory per rank: its number of ranks, and its bytes."""
    found = [(min(node.gpus, hardware.processes), node.memory) for node in nodes if node.gpus and node.memory]
    return min(found, key=lambda each: each[1] / each[0], default=(0, 0))


def _host(config: Config, ranks: int, there: int) -> Iterator[Check]:
    """Whether a machine's memory has room for its ranks."""
    shapes = shapes_of(config)
    if config.hardware.device != "cuda" or shapes is None or not ranks:
        return
    needed = host_memory_bytes(config, *shapes[:2], ranks)
    found = f"{ranks} ranks take up to {gigabytes(needed)}; the machine has {gigabytes(there)}"
    if needed <= there:
        yield Check("host memory", "ok", found)
    else:
        fix = "lower hardware.processes, or give each machine or pod more memory"
        yield Check("host memory", "missing", found, fix)


def _room(config: Config, home: Path) -> Iterator[Check]:
    """Whether the weights of the whole run fit on the disk."""
    needed = disk_bytes(config)
    if needed is None:
        return
    folder = _existing(home)
    free = shutil.disk_usage(folder).free
    found = f"the run needs up to {gigabytes(needed)}; {gigabytes(free)} are free at {folder}"
    if needed <= free:
        yield Check("disk for the run", "ok", found)
    else:
        fix = "set DIAGEVO_HOME to a larger disk, or --set round.keep_checkpoints=1"
        yield Check("disk for the run", "missing", found, fix)


def _models(config: Config) -> Iterator[Check]:
    for role in ("challenger", "solver"):
        model = getattr(config.roles, role).model
        folder = Path(model).expanduser()
        if model in SMALL:
            yield Check(f"{role} model", "ok", model)
            continue
        if not folder.exists() and model.count("/") == 1:
            if config_file(model) is not None:
                yield Check(f"{role} model", "ok", f"{model}, downloaded")
            else:
                fix = f"to download it first: hf download {model}"
                yield Check(f"{role} model", "warn", f"{model} is a hub id, not downloaded yet", fix)
            continue
        try:
            check_model_folder(folder)
            yield Check(f"{role} model", "ok", str(model))
        except DiagEvoError as error:
            yield Check(f"{role} model", "missing", error.message, error.hint or "")


def _services(config: Config) -> Iterator[Check]:
    for name in ("diagnostician", "embedder", "judge"):
        role = getattr(config.roles, name)
        if role.engine is None:
            continue
        if name != "judge" and not config.diagnosis.enabled:
            yield Check(name, "ok", "diagnosis.enabled is false: not asked")
            continue
        if role.engine != "openai":
            yield Check(name, "ok", f"{role.engine}, no service needed")
            continue
        if not role.base_url:
            yield Check(name, "missing", "no endpoint", f"--set roles.{name}.base_url=http://…/v1")
            continue
        key = key_from(role.api_key_env)
        found = _endpoint(name, role.base_url, key, role.api_key_env)
        if found.state == "ok" and key is None and not on_this_machine(role.base_url):
            fix = f"if it needs a key: export {role.api_key_env}=…"
            found = Check(name, "warn", f"{found.found}; {role.api_key_env} is not set", fix)
        yield found


def _endpoint(name: str, url: str, key: str | None, variable: str) -> Check:
    """Ask the endpoint for its models, which costs nothing; through a proxy if a run would use it."""
    from diagevo.sampling.connection import httpx, outside
    from diagevo.sampling.service import redirected

    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        reply = httpx.get(f"{url.rstrip('/')}/models", headers=headers, timeout=5.0, trust_env=outside(url))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        fix = f"start the server, or correct roles.{name}.base_url"
        return Check(name, "missing", f"{url} does not answer: {error}", fix)
    if (elsewhere := redirected(url, reply)) is not None:
        return Check(name, "missing", elsewhere.message, elsewhere.hint or "")
    if reply.status_code in (401, 403):
        return Check(name, "missing", f"{url} refuses the key", f"export {variable}=…")
    return Check(name, "ok", f"{url} answers")


def _thresholds(config: Config) -> Iterator[Check]:
    if not config.diagnosis.enabled:
        return
    embedder, memory = config.roles.embedder, config.memory
    values = f"θ_dup {memory.theta_dup:g}, θ_merge {memory.theta_merge:g} with {embedder.model}"
    if embedder.engine == "openai" and embedder.model == "text-embedding-v4":
        yield Check("thresholds", "ok", values)
    elif embedder.engine == "hashing":
        apt = config.roles.diagnostician.engine != "openai"
        fix = "" if apt else "the hashing embedder compares words only: name an embedding model"
        yield Check("thresholds", "ok" if apt else "missing", values, fix)
    else:
        fix = "the paper's 0.5 belongs to text-embedding-v4; diagevo memory calibrate proposes others"
        yield Check("thresholds", "warn", values, fix)
