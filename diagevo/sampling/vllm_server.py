"""A vLLM server that diagevo starts for a frozen model, watches, and ends with the stage."""

import json
import re
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diagevo.config.serving import lora_slots
from diagevo.errors import RefusedError, ServiceError
from diagevo.private import private_folder
from diagevo.progress import StopFlag
from diagevo.sampling.model_folder import (
    NOTHING,
    adapter_rank,
    base_of,
    check_model_folder,
    end_ids,
    load_tokenizer,
)
from diagevo.sampling.openai_sampler import OpenAISampler
from diagevo.sampling.sampler import Address, Answers, Completion, Prompt, SamplingParams
from diagevo.sampling.supervised import SupervisedProcess, ending, free_port
from diagevo.sampling.vllm_client import SERVED_NAME, cached_tokens, is_healthy, sampler_of

# `vllm serve`, of this Python: it has an API process for each copy of the model.
VLLM = (sys.executable, "-m", "vllm.entrypoints.cli.main", "serve")
_DYING = 30.0  # seconds that a server whose engine is dead gets to end by itself


class VLLMServer:
    """Implements `Served` over a server of its own, with a port that the system gives and a key of its own.

    A server that dies is started again with the same weights on the same port, `restarts` times in all, and
    asked for what it had not answered; after that the error names its log file. Other processes may ask it
    too (vllm_client.py), while this one calls `keep_up`. `close` ends its process group only.

    New weights need a new server: vLLM can read others while it runs, but on the CPU it then goes on with the
    old head of a model whose head is its embedding, without a word (tests/sampling/test_real_vllm.py).
    """

    def __init__(
        self,
        folder: Path,
        *,
        log: Path,
        options: Sequence[str] = (),
        capacity: int = 256,
        answer: int | None = None,
        command: Sequence[str] = VLLM,
        startup_timeout: float = 900.0,
        request_timeout: float = 1800.0,
        restarts: int = 1,
        env: dict[str, str] | None = None,
        host: str = "127.0.0.1",
        template_kwargs: Mapping[str, Any] = NOTHING,
        stop: StopFlag | None = None,
    ) -> None:
        """Start the server and wait until it is healthy. `options`: vLLM's, e.g. `--tensor-parallel-size 8`.

        `capacity`: completions that these options let it decode at once, so that it is kept full; where its
        cache has no room for so many of `answer` tokens, those that it has room for. `host`: the
        address that it listens on, loopback unless other machines ask it too.

        Raises MissingDependencyError for a folder that is no model, ServiceError where no server comes up.
        """
        self._folder = check_model_folder(folder)
        self._log = log
        self._options = tuple(options)
        self._command = tuple(command)
        self._capacity = capacity
        self._answer = answer
        self._startup_timeout = startup_timeout
        self._request_timeout = request_timeout
        self._restarts_left = restarts
        self._key = secrets.token_urlsafe(24)
        self._env = {**(env or {}), "VLLM_API_KEY": self._key}
        self._host = host
        self._template_kwargs = template_kwargs
        self._stop = StopFlag() if stop is None else stop
        self._process: SupervisedProcess | None = None
        self._sampler: OpenAISampler | None = None
        self._port = free_port(host)
        self._start()

    @property
    def url(self) -> str:
        """The server's address, without /v1."""
        return f"http://{self._host}:{self._port}"

    @property
    def servers(self) -> list[Address]:
        """Itself; with a key, since others may reach its port."""
        return [Address(self.url, self._key, self._capacity)]

    @property
    def pid(self) -> int | None:
        """Id of the server's process group; None once it is closed."""
        return None if self._process is None else self._process.pid

    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        n: int,
        params: SamplingParams,
        seed: int,
        answers: Answers | None = None,
    ) -> list[list[Completion]]:
        found = answers or Answers(len(prompts), n)
        while found.missing():
            if self._sampler is None:
                raise RuntimeError("the server is closed")
            try:
                self._sampler.fill(found, prompts, n=n, params=params, seed=seed)
            except RefusedError:
                raise
            except ServiceError as error:
                self._restart_or_report(error)
        return found.groups()

    def keep_up(self) -> None:
        """Start the server again where it has died. Raises ServiceError where it died too often."""
        if self._process is not None and (status := self._process.status()) is not None:
            self._restart(f"The vLLM server {ending(status)}")

    def close(self) -> None:
        """End the server and everything it started."""
        if self._sampler is not None:
            self._sampler.close()
            self._sampler = None
        if self._process is not None:
            self._process.stop()
            self._process = None

    def __enter__(self) -> "VLLMServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        argv = [
            *self._command,
            *self._weights(),
            "--host",
            self._host,
            "--port",
            str(self._port),
            *self._prompting(),
            *self._options,
        ]
        self._process = SupervisedProcess(argv, log=self._log, env=self._env)
        try:
            self._wait_until_healthy(self._process)
        except BaseException:
            self.close()
            raise
        if self._answer is not None and (tokens := cached_tokens(self.url)) is not None:
            # More would be begun and put off again where they have no room.
            self._capacity = max(1, min(self._capacity, tokens // self._answer))
        [server] = self.servers
        self._sampler = sampler_of(server, timeout=self._request_timeout, stop=self._stop)

    def _weights(self) -> list[str]:
        """The model under the name that is asked for; of one with an adapter the adapter, unmerged."""
        if (base := base_of(self._folder)) is None:
            return [self._linked(self._folder), "--served-model-name", SERVED_NAME]
        return [
            self._linked(base),
            "--served-model-name",
            f"{SERVED_NAME}-base",
            "--enable-lora",
            "--lora-modules",
            f"{SERVED_NAME}={self._folder.resolve()}",
            "--max-lora-rank",
            str(lora_slots(adapter_rank(self._folder))),
        ]

    def _linked(self, folder: Path) -> str:
        """The folder by a path that is the same for every policy that writes to this log: vLLM keeps what it
        compiled under the path of the model, and each stage would compile the same graph again."""
        link = self._log.with_name(f"{self._log.stem}-policy")
        private_folder(link.parent)
        link.unlink(missing_ok=True)
        link.symlink_to(folder.resolve(), target_is_directory=True)
        return str(link.absolute())

    def _prompting(self) -> list[str]:
        """The chat template as we read it: a model without one gets the plain one, which vLLM has not. And a
        generation config of end marks alone: the model's own may have a top-k that would apply unasked."""
        tokenizer = load_tokenizer(self._folder, self._template_kwargs)
        told = self._log.with_name(f"{self._log.stem}-prompting")
        private_folder(told)
        template, generation = told / "template.jinja", told / "generation_config.json"
        template.write_text(tokenizer.chat_template, encoding="utf-8")
        ends = {"eos_token_id": list(end_ids(self._folder, tokenizer))}
        generation.write_text(json.dumps(ends), encoding="utf-8")
        return ["--chat-template", str(template), "--generation-config", str(told)]

    def _wait_until_healthy(self, process: SupervisedProcess) -> None:
        deadline = time.monotonic() + self._startup_timeout
        while time.monotonic() < deadline:
            status = process.status()
            if status is not None:
                raise self._failure(f"The vLLM server {ending(status)} before it was ready.")
            if is_healthy(self.url):
                return
            self._stop.check_overdue()
            time.sleep(0.2)
        raise self._failure(f"The vLLM server was not healthy after {self._startup_timeout:g} s.")

    def _restart_or_report(self, error: ServiceError) -> None:
        """Start a server again that is dead or dying; raise where it is well (the request is at fault)."""
        if self._process is None:
            raise error
        deadline = time.monotonic() + _DYING
        while (status := self._process.wait(1.0)) is None:
            if is_healthy(self.url):
                raise error
            self._stop.check_overdue()
            if time.monotonic() > deadline:
                self._restart("The vLLM server does not answer")
                return
        self._restart(f"The vLLM server {ending(status)}")

    def _restart(self, reason: str) -> None:
        if self._restarts_left == 0:
            raise self._failure(f"{reason} and is not restarted.")
        self._restarts_left -= 1
        self.close()
        self._start()

    def _failure(self, message: str) -> ServiceError:
        tail = "" if self._process is None else _telling(self._process.tail(400))
        return ServiceError(f"{message} Its log says:\n{tail}", hint=f"The whole log: {self._log}")


def _telling(log: str) -> str:
    """The lines of a log that name errors, the last few of them; without any, its end.

    vLLM's processes go on writing for a while after the one that knew the cause.
    """
    lines = log.splitlines()
    named = dict.fromkeys(line for line in lines if re.search(r"\b[A-Z]\w*(Error|Exception): ", line))
    return "\n".join(list(named)[-5:] or lines[-15:])
