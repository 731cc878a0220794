"""An event as SQLModel has it, for the side of `bench_log` that adds it with a session."""

from sqlmodel import Field, SQLModel


class EventRow(SQLModel, table=True):
    """A row of `event`."""

    __tablename__ = "event"  # pyright: ignore[reportAssignmentType]  (declared as a callable)

    position: int = Field(primary_key=True)
    event_id: str
    run_id: str
    sequence: int
    round: int
    type: str
    schema_version: int
    cause_id: str | None
    payload: str
    causation_id: str | None
    recorded_at: str
    previous_hash: str
    hash: str
