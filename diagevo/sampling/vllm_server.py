"""A vLLM server that diagevo starts for a frozen model, watches, and ends with the stage."""

import json
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diagevo.errors import MissingDependencyError, ServiceError
from diagevo.sampling.model_folder import check_model_folder
from diagevo.sampling.openai_sampler import OpenAISampler
from diagevo.sampling.sampler import Completion, Prompt, SamplingParams
from diagevo.sampling.supervised import SupervisedProcess, ending

# Not `vllm serve`: it looks up its distribution's name, which other builds of vLLM do not have.
VLLM = (sys.executable, "-m", "vllm.entrypoints.openai.api_server")
SERVED_NAME = "policy"
_SHAPE = (
    "architectures",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
)


class VLLMServer:
    """Implements `Sampler` over a server of its own on loopback, with a port that the system gives.

    A server that dies is started again with the same weights, `restarts` times in all, and the call that it
    interrupted is made again; after that the error names its log file. `close` ends its process group only.
    """

    def __init__(
        self,
        folder: Path,
        *,
        log: Path,
        options: Sequence[str] = (),
        command: Sequence[str] = VLLM,
        startup_timeout: float = 900.0,
        request_timeout: float = 1800.0,
        restarts: int = 1,
        env: dict[str, str] | None = None,
    ) -> None:
        """Start the server and wait until it is healthy. `options`: vLLM's, e.g. `--tensor-parallel-size 8`.

        Raises MissingDependencyError for a folder that is no model, ServiceError where no server comes up.
        """
        self._folder = check_model_folder(folder)
        self._log = log
        self._options = tuple(options)
        self._command = tuple(command)
        self._startup_timeout = startup_timeout
        self._request_timeout = request_timeout
        self._restarts_left = restarts
        # The development mode has the calls for new weights, and no keys: the server stays on loopback.
        self._env = {"VLLM_SERVER_DEV_MODE": "1", **(env or {})}
        self._process: SupervisedProcess | None = None
        self._sampler: OpenAISampler | None = None
        self._start()

    @property
    def url(self) -> str:
        """The server's address, without /v1."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        """Id of the server's process group; None once it is closed."""
        return None if self._process is None else self._process.pid

    def sample(
        self, prompts: Sequence[Prompt], *, n: int, params: SamplingParams, seed: int
    ) -> list[list[Completion]]:
        while True:
            if self._sampler is None:
                raise RuntimeError("the server is closed")
            try:
                return self._sampler.sample(prompts, n=n, params=params, seed=seed)
            except ServiceError as error:
                self._restart_or_report(error)

    def reload_weights(self, folder: Path) -> None:
        """Serve the weights in `folder` from now on, without a restart.

        vLLM does not survive a path it cannot load, so the folder is checked first, and must hold the same
        architecture. Raises MissingDependencyError for a bad folder, ServiceError where the server refuses.
        """
        check_model_folder(folder)
        old, new = (_architecture(path) for path in (self._folder, folder))
        if old != new:
            raise MissingDependencyError(
                f"{folder} holds another architecture than the server's {self._folder}.",
                hint="Start a server of its own for it.",
            )
        self._folder = folder
        try:
            self._post(
                "/collective_rpc",
                {"method": "reload_weights", "kwargs": {"weights_path": str(folder.resolve())}},
            )
            self._post("/reset_prefix_cache", None)
        except ServiceError as error:
            self._restart_or_report(error)  # A restarted server loads the new folder.

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
        self._port = _free_port()
        argv = [
            *self._command,
            "--model",
            str(self._folder.resolve()),
            "--served-model-name",
            SERVED_NAME,
            "--host",
            "127.0.0.1",
            "--port",
            str(self._port),
            # vLLM's own defaults, or a top-k of the model's generation config would apply unasked.
            "--generation-config",
            "vllm",
            *self._options,
        ]
        self._process = SupervisedProcess(argv, log=self._log, env=self._env)
        try:
            self._wait_until_healthy(self._process)
        except BaseException:
            self.close()
            raise
        self._sampler = OpenAISampler(f"{self.url}/v1", SERVED_NAME, timeout=self._request_timeout, retries=1)

    def _wait_until_healthy(self, process: SupervisedProcess) -> None:
        deadline = time.monotonic() + self._startup_timeout
        while time.monotonic() < deadline:
            status = process.status()
            if status is not None:
                raise self._failure(f"The vLLM server {ending(status)} before it was ready.")
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return
            except OSError:
                time.sleep(0.2)
        raise self._failure(f"The vLLM server was not healthy after {self._startup_timeout:g} s.")

    def _restart_or_report(self, error: ServiceError) -> None:
        """Start a dead server again; raise where it lives (the request is at fault) or died too often."""
        if self._process is None:
            raise error
        status = self._process.wait(2.0)  # The connection breaks a moment before the process is gone.
        if status is None:
            raise error
        if self._restarts_left == 0:
            raise self._failure(f"The vLLM server {ending(status)} and is not started again.") from error
        self._restarts_left -= 1
        self.close()
        self._start()

    def _post(self, path: str, body: Any) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.url}{path}", data=data, headers={"Content-Type": "application/json"}, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=self._request_timeout):
                return
        except urllib.error.HTTPError as error:
            detail = error.read().decode(errors="replace")[:500]
            message = f"vLLM refused {path}: {error.code} {detail}"
            raise ServiceError(message, hint=f"Its log: {self._log}") from error
        except OSError as error:
            raise ServiceError(
                f"vLLM did not answer {path}: {error}", hint=f"Its log: {self._log}"
            ) from error

    def _failure(self, message: str) -> ServiceError:
        tail = "" if self._process is None else self._process.tail()
        return ServiceError(f"{message} The end of its log:\n{tail}", hint=f"The whole log: {self._log}")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _architecture(folder: Path) -> dict[str, Any]:
    """What must be equal for the weights of one folder to fit the model of another."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return {name: config.get(name) for name in _SHAPE}
