"""The run that the trackers are given: that of the report's tests."""

from tests.report.conftest import history, run_folder

__all__ = ["history", "run_folder"]
