"""An engine of known capacity behind the routes of vLLM: a request ends when no further one finds room.

`--max-num-seqs` sequences run at once, others wait for their turn. The one that ran longest ends as soon as
the engine is full, or all `--expect` requests are there; where it once waited in vain for either, it does not
wait again. JOURNAL gets a line for each request that ends: the sequences that ran until then, and its prompt.
`--die-after N --workers W`: ends itself, the first time, once it gave N answers and was asked for W more.
"""

import argparse
import asyncio
import json
import os
import signal
from collections import deque
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser()
for name in ("--host", "--journal"):
    parser.add_argument(name)
for name in ("--port", "--max-num-seqs", "--expect", "--die-after", "--workers"):
    parser.add_argument(name, type=int, default=0)
options, _ = parser.parse_known_args()
journal = Path(options.journal)
first = not journal.exists()
dies = options.die_after and first
journal.touch()


class Engine:
    def __init__(self) -> None:
        self.waiting: deque[tuple[Any, asyncio.Future[None]]] = deque()
        self.running: deque[tuple[Any, asyncio.Future[None]]] = deque()
        self.asked = self.given = 0
        self.came = asyncio.Event()
        self.patience = 20.0 if first else 0.01

    def load(self) -> int:
        return sum(body["n"] for body, _ in self.running)

    async def complete(self, body: Any) -> None:
        self.asked += 1
        done = asyncio.get_running_loop().create_future()
        self.waiting.append((body, done))
        self.came.set()
        await done

    async def run(self) -> None:
        while True:
            while self.waiting and self.load() + self.waiting[0][0]["n"] <= options.max_num_seqs:
                self.running.append(self.waiting.popleft())
            if dies and self.given == options.die_after:
                if self.asked == options.die_after + options.workers:
                    os.kill(os.getpid(), signal.SIGKILL)
                await self._more()
                continue
            full = bool(self.waiting) or self.load() == options.max_num_seqs or self.asked == options.expect
            if (full or not await self._more()) and self.running:
                load = self.load()
                body, done = self.running.popleft()
                with journal.open("a") as file:
                    file.write(json.dumps([load, body["messages"][0]["content"]]) + "\n")
                self.given += 1
                done.set_result(None)
                await asyncio.sleep(0)  # its answer is sent, and the next request may come

    async def _more(self) -> bool:
        """Whether a request came."""
        self.came.clear()
        try:
            await asyncio.wait_for(self.came.wait(), self.patience)
        except TimeoutError:
            self.patience = 0.01
            return False
        return True


async def serve(engine: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while head := await reader.readline():
        length = 0
        while (line := (await reader.readline()).strip().lower()) != b"":
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        reply: Any = {}
        if head.startswith(b"POST"):
            body = json.loads(await reader.readexactly(length))
            await engine.complete(body)
            message = {"role": "assistant", "content": body["messages"][0]["content"]}
            choices = [{"index": i, "message": message, "finish_reason": "stop"} for i in range(body["n"])]
            usage = {"prompt_tokens": 1, "completion_tokens": 5, "total_tokens": 6}
            reply = {"id": "c", "object": "chat.completion", "created": 0, "model": "policy"}
            reply |= {"choices": choices, "usage": usage}
        payload = json.dumps(reply).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(payload)
        )
        writer.write(payload)
        await writer.drain()
    writer.close()


async def main() -> None:
    engine = Engine()
    server = await asyncio.start_server(
        lambda reader, writer: serve(engine, reader, writer), options.host, options.port, backlog=4096
    )
    await asyncio.gather(server.serve_forever(), engine.run())


asyncio.run(main())
