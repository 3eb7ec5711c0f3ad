"""Jinja templates of pages that are one file each: they open from disk and load nothing."""

from __future__ import annotations

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

REPORT = "benchmarks.results.report"
"""The package whose template folder has the style that all pages begin with."""


def page_environment(*packages: str) -> Environment:
    """Templates in the folder `template` of each package; the first that has one wins."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(name, "template") for name in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def sources(environment: Environment, *files: str) -> Markup:
    """Styles or scripts beside the templates, put into the page unchanged, in order."""
    loader = environment.loader
    assert loader is not None
    return Markup("\n").join(
        Markup(loader.get_source(environment, file)[0]) for file in files
    )
