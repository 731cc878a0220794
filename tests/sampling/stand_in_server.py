"""Stands in for a vLLM server in tests of process handling: same routes, scripted answers, no model.

Options that the tests pass in place of vLLM's own: --die-at-start, --never-healthy, --die-once FLAG_FILE
(at the first completion where FLAG_FILE does not exist), --die-always, --lose-engine FLAG_FILE (as
--die-once, but the process stays, unhealthy), --spawn PID_FILE (a child that ignores SIGTERM), --metrics FILE
(what it says of itself).
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser()
parser.add_argument("model")
for name in (
    "--served-model-name",
    "--host",
    "--port",
    "--generation-config",
    "--chat-template",
    "--die-once",
    "--lose-engine",
    "--spawn",
    "--metrics",
):
    parser.add_argument(name)
for name in ("--die-at-start", "--never-healthy", "--die-always"):
    parser.add_argument(name, action="store_true")
options = parser.parse_args()
healthy = not options.never_healthy


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/metrics" and options.metrics:
            said = Path(options.metrics).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)
            return
        self.reply(200 if healthy else 503, {})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body: Any = json.loads(self.rfile.read(length) or "null")
        if self.headers["Authorization"] != f"Bearer {os.environ['VLLM_API_KEY']}":
            self.reply(401, {"error": "Unauthorized"})
            return
        self.complete(body)

    def complete(self, body: Any) -> None:
        global healthy
        if options.lose_engine and not Path(options.lose_engine).exists():
            Path(options.lose_engine).touch()
            healthy = False
        if not body["messages"]:
            self.reply(400, {"error": "no message"})
            return
        if not healthy:
            self.reply(500, {"error": "EngineDeadError"})
            return
        if options.die_always or (options.die_once and not Path(options.die_once).exists()):
            if options.die_once:
                Path(options.die_once).touch()
            print("(EngineCore) RuntimeError: the engine died\n" + 30 * "leaked function\n", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        text = json.dumps(
            {
                "weights": str(Path(options.model).resolve()),
                "model": options.model,
                "template": options.chat_template,
                "generation": options.generation_config,
            }
        )
        message = {"role": "assistant", "content": text}
        choices = [{"index": i, "message": message, "finish_reason": "stop"} for i in range(body["n"])]
        usage = {"prompt_tokens": 1, "completion_tokens": 5, "total_tokens": 6}
        head = {"id": "c", "object": "chat.completion", "created": 0, "model": body["model"]}
        self.reply(200, {**head, "choices": choices, "usage": usage})

    def reply(self, status: int, body: Any) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: Any) -> None:
        pass


print(f"stand-in for {options.model}", flush=True)
if options.die_at_start:
    print("no kernel for this device", flush=True)
    sys.exit(3)
if options.spawn:
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    Path(options.spawn).write_text(str(subprocess.Popen([sys.executable, "-c", stubborn]).pid))
ThreadingHTTPServer((options.host, int(options.port)), Handler).serve_forever()
