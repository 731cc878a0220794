"""A writer process: appends to a run of its own and to one that it shares with the others."""

import sys

from diagevo.errors import StaleWriterError
from diagevo.memory.events import StageStarted
from diagevo.memory.events.records import pending
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log


def write(log: Log, name: str, count: int) -> None:
    """`count` events to run `name`, and as many to run `shared`, again whenever somebody was faster."""
    for number in range(1, count + 1):
        log.append(name, number - 1, [pending(name, 1, StageStarted(stage=name, attempt=number))])
        event = pending("shared", 1, StageStarted(stage=name, attempt=number))
        while True:
            try:
                log.append("shared", log.head("shared").sequence, [event])
                break
            except StaleWriterError:
                continue


if __name__ == "__main__":
    database = Database(sys.argv[1])
    write(Log(database), sys.argv[2], int(sys.argv[3]))
    database.close()
