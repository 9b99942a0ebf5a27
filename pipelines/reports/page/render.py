"""The page as one HTML file: everything a browser needs is in it, and nothing is loaded from anywhere."""

import base64
import gzip
import secrets
from functools import cache

import altair
import vl_convert
from itables.utils import read_package_file
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from pipelines.reports.page import words
from pipelines.reports.page.charts import CONFIG
from pipelines.reports.page.overview import Overview

# The one function of the charts' libraries that the page calls.
DRAW = "window.vegaEmbed = vegaEmbed;"


def render(told: Overview, version: str | None = None) -> str:
    """The page's HTML.

    version  of a served page, which loads itself again when the server has another version; None for a file
    """
    return _template().render(
        overview=told,
        name=told.store.rstrip("/").rpartition("/")[2] or told.store,
        version=version,
        chart_config=CONFIG,
        packed=libraries(),
        nonce=secrets.token_urlsafe(16),
    )


def prepare() -> None:
    """Make what every page has, so that render() finds it."""
    libraries()
    _template()


@cache
def libraries() -> dict[str, str]:
    """The JavaScript and CSS of the page, compressed, by their ids in the page."""
    return {
        "packed-charts": _packed(vl_convert.javascript_bundle(DRAW, vl_version=_vega_lite_version())),
        "packed-tables": _packed(read_package_file("html/dt_bundle.js")),
        "packed-table-style": _packed(read_package_file("html/dt_bundle.css")),
    }


def _vega_lite_version() -> str:
    """The version of Vega-Lite that Altair writes (v6.4.1), by vl-convert's name for it (6.4)."""
    return ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


@cache
def _template() -> Template:
    pages = Environment(
        loader=PackageLoader("pipelines.reports.page", "template"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {"count": words.count, "size": words.size, "moment": words.moment}
    return pages.get_template("page.html")
