"""`diagevo doctor`: what is missing here, and the command that mends it."""

import importlib.util
import os
import shlex
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from diagevo.errors import DiagEvoError
from diagevo.redaction import key_from, redacted

from .. import options
from ..options import Call
from ..render import console as render
from ..render.rows import print_rows
from ..render.table import Column
from ..screens.plan import disk_bytes, gigabytes

if TYPE_CHECKING:
    from diagevo.config.models import Config
    from diagevo.memory.log.database import Database

Purpose = Literal["audit", "train", "eval"]
State = Literal["well", "note", "missing"]

COLUMNS = (
    Column("state", ""),
    Column("name", "what"),
    Column("found"),
    Column("mend", "what mends it"),
)
CORE = ("sqlmodel", "sqlalchemy", "alembic", "pydantic", "polars", "pyarrow", "numpy", "openai")
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
class Finding:
    """One thing looked at."""

    name: str
    state: State
    found: str
    mend: str = ""


def register(app: typer.Typer) -> None:
    options.command(
        app,
        "doctor",
        reads=options.CONFIGURATION,
        rows=True,
        data=lambda: list[Finding],
        example="""diagevo doctor
        diagevo doctor --for train --profile qwen3-8b""",
    )(doctor)


def doctor(
    call: Call,
    *,
    purpose: Annotated[
        Purpose, typer.Option("--for", help="What you want to do here: audit, train or eval.")
    ] = "audit",
) -> None:
    """What is missing here, and what mends it.

    Looks at versions, database, disk, GPUs, models, endpoints and thresholds. Exit 4 where something that is
    needed is missing.
    """
    findings = [*_versions(purpose), *_store(call)]
    if purpose != "audit":
        findings += list(_stack())
        config = _configuration(call, findings)
        if config is not None:
            findings += [*_devices(config), *_models(config), *_services(config), *_thresholds(config)]
            if purpose == "train":
                findings += [*_validation(config), *_machines(call, config), *_room(call, config)]
    print_rows(call, COLUMNS, [redacted(render.plain(finding)) for finding in findings])
    if any(finding.state == "missing" for finding in findings):
        raise typer.Exit(4)


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _versions(purpose: Purpose) -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    last, tested = ((3, 11), "3.11") if purpose == "train" else ((3, 14), "3.11 to 3.14")
    right = (3, 11) <= sys.version_info[:2] <= last
    yield Finding("python", "well" if right else "note", python, "" if right else f"tested with {tested}")
    yield Finding("diagevo", "well", _installed("diagevo") or "not installed")
    absent = [name for name in CORE if _installed(name) is None]
    if absent:
        yield Finding("core packages", "missing", f"not here: {', '.join(absent)}", "pip install diagevo")
    else:
        yield Finding("core packages", "well", f"all {len(CORE)} here")


def _store(call: Call) -> Iterator[Finding]:
    from diagevo.memory.log.check import check
    from diagevo.memory.log.database import Database
    from diagevo.memory.log.location import shown
    from diagevo.memory.log.migrate import prepare
    from diagevo.private import open_to_others

    database = Database(call.database)
    where = shown(database.url)
    try:
        if database.file is not None and not database.file.exists():
            yield Finding("database", "note", f"none yet at {where}", "diagevo init")
        else:
            prepare(database, create=False)
            for found in check(database):
                state = "missing" if not found.ok else "note" if found.mend else "well"
                yield Finding(f"database: {found.check}", state, found.detail, found.mend)
            if opened := [f for f in _folders(database) if open_to_others(f)]:
                again = shlex.join(["chmod", "-R", "go=", *map(str, opened)])
                yield Finding("runs", "note", f"others may read {', '.join(map(str, opened))}", again)
    except DiagEvoError as error:
        yield Finding("database", "missing", error.message, (error.hint or "").removeprefix("run: "))
    finally:
        database.close()
    folder = _existing(call.home)
    if os.access(folder, os.W_OK):
        free = shutil.disk_usage(folder).free
        few = free < 2e9
        mend = "free some, or set DIAGEVO_HOME" if few else ""
        yield Finding("disk", "note" if few else "well", f"{free / 1e9:.1f} GB free at {folder}", mend)
    else:
        yield Finding("disk", "missing", f"{folder} cannot be written", "set DIAGEVO_HOME to another folder")


def _folders(database: "Database") -> list[Path]:
    """The folders of the runs that have one."""
    from diagevo.memory.log.log import Log
    from diagevo.memory.opening import runs_folder

    folders = [runs_folder(database) / run for run in Log(database).runs()]
    return [folder for folder in folders if folder.is_dir()]


def _existing(folder: Path) -> Path:
    """The folder, or the nearest above it that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _stack() -> Iterator[Finding]:
    for name in EVALUATION:
        found = _installed(name)
        mend = "" if found else "pip install 'diagevo[eval]'"
        yield Finding(name, "well" if found else "missing", found or "not installed", mend)
    for name, tested in TRAINING.items():
        found = _installed(name)
        if found is None:
            yield Finding(name, "missing", "not installed", "pip install 'diagevo[train]'")
        elif found.partition("+")[0] != tested:
            mend = f"tested with {tested}: pip install -c constraints.txt 'diagevo[train]'"
            yield Finding(name, "note", found, mend)
        else:
            yield Finding(name, "well", found)


def _configuration(call: Call, findings: list[Finding]) -> "Config | None":
    try:
        return call.load_config()
    except DiagEvoError as error:
        findings.append(Finding("configuration", "missing", error.message, error.hint or ""))
        return None


def _devices(config: "Config") -> Iterator[Finding]:
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    hardware = config.hardware
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = f"{gpus} × {torch.cuda.get_device_name(0)}" if gpus else f"none; {os.cpu_count()} CPU cores"
    if not gpus and hardware.device == "cuda" and torch.version.cuda is None:
        names += ", and torch was built without CUDA"
    training = set(hardware.train_gpus or range(hardware.processes)) if hardware.device == "cuda" else set()
    wanted = training | set(hardware.serve_gpus)
    if len(wanted) > gpus or not wanted <= set(range(gpus)):
        mend = "name others in hardware.train_gpus and serve_gpus" if gpus else "a machine with GPUs"
        if hardware.device == "cuda" and not gpus:
            mend = f"--set hardware.device=cpu, or {mend}"
        listed = ", ".join(map(str, sorted(wanted)))
        yield Finding("GPU", "missing", f"{names}; GPUs {listed} wanted", mend)
    else:
        yield Finding("GPU", "well", names)
    if gpus and hardware.device != "cpu" and not torch.cuda.is_bf16_supported(including_emulation=False):
        yield Finding("bfloat16", "missing", "this GPU has none", "an Ampere GPU or a newer one")
    if hardware.attention == "flash_attention_2" and importlib.util.find_spec("flash_attn") is None:
        mend = "pip install 'diagevo[flash]', or --set hardware.attention=sdpa"
        yield Finding("flash-attn", "missing", "not installed", mend)
    yield from _vllm(config, training)


def _vllm(config: "Config", training: set[int]) -> Iterator[Finding]:
    """vLLM in the trainer and as a server: is it here, and do both fit on their GPUs?"""
    hardware = config.hardware
    uses = {"hardware.colocate_vllm=false": hardware.colocate_vllm}
    uses["hardware.serve=transformers"] = hardware.serve == "vllm"
    without = [setting for setting, used in uses.items() if used]
    if without and importlib.util.find_spec("vllm") is None:
        options = " ".join(f"--set {setting}" for setting in without)
        yield Finding("vllm", "missing", "not installed", f"pip install 'diagevo[vllm]', or {options}")
    if hardware.serve != "vllm":
        return
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
        yield Finding("vLLM server: port", "well", "a free one is there")
    except OSError as error:
        yield Finding("vLLM server: port", "missing", f"127.0.0.1: {error}", "allow listening on loopback")
    if hardware.device != "cuda":
        return
    options = dict(pairwise(" ".join(hardware.serve_options).replace("=", " ").split()))
    sizes = (options.get(f"--{kind}-parallel-size", "1") for kind in ("data", "tensor", "pipeline"))
    copies = prod(int(size) for size in sizes if size.isdecimal())
    named = len(hardware.serve_gpus)
    if named and copies != named:
        few = "more than there are" if copies > named else "the others stay idle"
        mend = "let data × tensor parallel size in hardware.serve_options be the number of serve_gpus"
        state: State = "missing" if copies > named else "note"
        yield Finding("vLLM server: GPUs", state, f"it uses {copies} of {named}: {few}", mend)
    shared = training & set(hardware.serve_gpus or range(copies))
    if shared and "--gpu-memory-utilization" not in options:
        listed = ", ".join(map(str, sorted(shared)))
        mend = "other hardware.serve_gpus, or --gpu-memory-utilization in hardware.serve_options"
        yield Finding(
            "vLLM server: memory", "missing", f"it takes nearly all of GPUs {listed}, which train", mend
        )


def _validation(config: "Config") -> Iterator[Finding]:
    """Whether there is a set to choose the checkpoint by. What lies on the hub is not asked for here."""
    from diagevo.roles import BENCHMARK, validation_of

    questions = config.validation.questions
    if questions is None:
        mend = f"--set validation.questions={BENCHMARK}validation"
        yield Finding("validation", "note", "none: no checkpoint is chosen", mend)
    elif questions.startswith(BENCHMARK) and config.validation.data is None:
        mend = "train reads it before it begins; without a network: --set validation.data=FOLDER"
        yield Finding("validation", "note", f"{questions}, from the hub", mend)
    else:
        try:
            found = validation_of(config)
        except DiagEvoError as error:
            yield Finding("validation", "missing", error.message, error.hint or "")
        else:
            size = 0 if found is None else len(found.questions)
            yield Finding("validation", "well", f"{questions}, {size} questions")


def _machines(call: Call, config: "Config") -> Iterator[Finding]:
    """Whether the other machines can reach this one, and its log."""
    hardware = config.hardware
    if hardware.machines == 1 or hardware.address is None:
        return
    try:
        socket.create_server((hardware.address, 0)).close()
        yield Finding("machines", "well", f"{hardware.machines}, reaching this one at {hardware.address}")
    except OSError as error:
        mend = "hardware.address must be a name or an address of this machine"
        yield Finding("machines", "missing", f"cannot listen at {hardware.address}: {error}", mend)
    if not call.database.startswith("postgresql"):
        mend = "--db postgresql://…"
        yield Finding("machines: log", "note", "SQLite is not safe on a disk that machines share", mend)


def _room(call: Call, config: "Config") -> Iterator[Finding]:
    """Whether the weights of the whole run fit on the disk."""
    needed = disk_bytes(config)
    if needed is None:
        return
    folder = _existing(call.home)
    free = shutil.disk_usage(folder).free
    found = f"the run takes up to {gigabytes(needed)}, {gigabytes(free)} are free at {folder}"
    if needed <= free:
        yield Finding("disk for the run", "well", found)
    else:
        mend = "set DIAGEVO_HOME to a larger disk, or --set round.keep_checkpoints=1"
        yield Finding("disk for the run", "missing", found, mend)


def _models(config: "Config") -> Iterator[Finding]:
    from importlib.resources import files

    from diagevo.sampling.model_folder import check_model_folder

    for role in ("challenger", "solver"):
        model = getattr(config.roles, role).model
        folder = Path(model).expanduser()
        if model == "builtin:arithmetic":
            folder = Path(str(files("diagevo.arithmetic") / "weights"))
        elif not folder.exists() and model.count("/") == 1:
            if _downloaded(model):
                yield Finding(f"{role} model", "well", f"{model}, downloaded")
            else:
                mend = f"download it first: hf download {model}"
                yield Finding(f"{role} model", "note", f"{model} is a hub id", mend)
            continue
        try:
            check_model_folder(folder)
            yield Finding(f"{role} model", "well", str(model))
        except DiagEvoError as error:
            yield Finding(f"{role} model", "missing", error.message, error.hint or "")


def _downloaded(model: str) -> bool:
    if importlib.util.find_spec("huggingface_hub") is None:
        return False
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(model, "config.json"), str)


def _services(config: "Config") -> Iterator[Finding]:
    for name in ("diagnostician", "embedder"):
        role = getattr(config.roles, name)
        if role.engine != "openai":
            yield Finding(name, "well", f"{role.engine}, no service needed")
            continue
        if not role.base_url:
            yield Finding(name, "missing", "no endpoint", f"--set roles.{name}.base_url=http://…/v1")
            continue
        yield _endpoint(name, role.base_url, key_from(role.api_key_env), role.api_key_env)


def _endpoint(name: str, url: str, key: str | None, variable: str) -> Finding:
    """Ask the endpoint for its models: it costs nothing."""
    import httpx

    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        reply = httpx.get(f"{url.rstrip('/')}/models", headers=headers, timeout=5.0)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Finding(
            name, "missing", f"{url} does not answer: {error}", "start the server, or mend base_url"
        )
    if reply.status_code in (401, 403):
        return Finding(name, "missing", f"{url} refuses the key", f"export {variable}=…")
    return Finding(name, "well", f"{url} answers")


def _thresholds(config: "Config") -> Iterator[Finding]:
    embedder, memory = config.roles.embedder, config.memory
    values = f"θ_dup {memory.theta_dup:g}, θ_merge {memory.theta_merge:g} with {embedder.model}"
    if embedder.engine == "openai" and embedder.model == "text-embedding-v4":
        yield Finding("thresholds", "well", values)
    elif embedder.engine == "hashing":
        apt = config.roles.diagnostician.engine == "rules:arithmetic"
        mend = "" if apt else "the hashing embedder sees shared words only: name an embedding model"
        yield Finding("thresholds", "well" if apt else "missing", values, mend)
    else:
        mend = "the paper's 0.5 belongs to text-embedding-v4; diagevo memory calibrate proposes others"
        yield Finding("thresholds", "note", values, mend)
