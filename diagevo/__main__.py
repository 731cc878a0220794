"""`python -m diagevo`: the command line, which the checkout has beside the package."""

from importlib import import_module

import_module("diagevo.cli.main").app()
