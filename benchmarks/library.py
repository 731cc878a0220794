"""What a user of the eventsourcing library writes for the same failures: one aggregate, an event each."""

from eventsourcing.domain import Aggregate, event


class Failures(Aggregate):
    """Failures of a run; the fields are those of FailureObserved."""

    @event("Observed")
    def observe(
        self,
        failure_id: str,
        question_id: str,
        stage: str,
        attempt: int,
        step: int,
        trajectory: str,
        reference: str,
    ) -> None:
        self.last = failure_id
