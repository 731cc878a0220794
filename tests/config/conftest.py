"""Each test runs in an empty folder, as those of the program."""

from tests.cli.conftest import _a_folder_of_its_own  # noqa: F401  (a fixture)
