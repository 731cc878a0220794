"""Sphinx builds the documentation: `make docs`. Reference pages are made from the code before each build."""

import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "DiagEvo"
author = "the DiagEvo authors"
copyright = "the DiagEvo authors"
release = version = installed("diagevo")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "from_code", "study_pages"]
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
# Signatures name types of the package by their short names; not each of them has a page.
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False

html_theme = "furo"
html_title = "DiagEvo"
html_static_path = ["pictures"]
html_show_sourcelink = False
