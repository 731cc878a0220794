"""The pages of a database by their path: the same bytes whether they are served or written into a folder.

Paths end in `.html` and links between them are relative, so that a folder of them opens from a disk.
"""

import posixpath
import re
from base64 import b64encode
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib.resources import files
from textwrap import shorten
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from diagevo.errors import NotFoundError, StoreError
from diagevo.memory.log.log import Head
from diagevo.memory.own_ids import Named, named_so
from diagevo.memory.read.opened_rounds import observations
from diagevo.text.escaping import visible
from diagevo.text.numbers import count, fraction, number, percent
from diagevo.view import against, pages, report_page, response_pages, sliders, stories
from diagevo.view.page import TEXT, Page, Site

_ID = re.compile(
    r"\b(?:(?P<failures>r\d+\.q\d+\.a\d+)|(?P<questions>r\d+\.q\d+)|(?P<causes>c\d+)|(?P<nodes>n\d+)"
    r"|(?P<rounds>r\d+))\b"
)
_KINDS: dict[str, Named] = {"questions": "question", "failures": "failure"}
FEW = 3
"""Number of causes in a line from which their descriptions are left out."""
Builder = Callable[..., Page]

RUN = r"(?P<run>[A-Za-z0-9][A-Za-z0-9._-]{0,99})"
OTHER = r"(?P<other>[A-Za-z0-9][A-Za-z0-9._-]{0,99})"
NUMBER = r"(?P<number>[1-9]\d{0,8})"
PART = r"(?:\.p(?P<part>[1-9]\d{0,8}))?"
SECONDS = 120.0
"""What the queries of one served page may take: the first list of a million responses reads every text."""
RESPONSES = "memory query 'SELECT * FROM v_response WHERE run_id = :run' --run {run}"
ROUTES: tuple[tuple[str, Builder, str], ...] = (
    (r"index", pages.runs, "runs list"),
    (rf"{RUN}/index", pages.overview, "runs show {run}"),
    (rf"{RUN}/diagnostics", pages.diagnostics, "runs show {run}"),
    (rf"{RUN}/report(?:/since/{OTHER})?", report_page.report, "view --report FILE.html --run {run}"),
    (rf"{RUN}/against/{OTHER}", against.against, "runs diff {run}..{other}"),
    (rf"{RUN}/compare", against.compare, "runs diff {run}..RUN"),
    (rf"{RUN}/live", pages.live, "runs show {run}"),
    (rf"{RUN}/causes{PART}", pages.causes, "memory show --run {run}"),
    (rf"{RUN}/causes/(?P<cause>c\d+){PART}", stories.cause, "memory why {cause} --run {run}"),
    (rf"{RUN}/nodes/(?P<node>n\d+)", stories.node, "memory why {node} --run {run}"),
    (rf"{RUN}/rounds/{NUMBER}{PART}", pages.round_, "memory replay --round {number} --run {run}"),
    (rf"{RUN}/questions/(?P<question>r\d+\.q\d+)", stories.question, "memory why {question} --run {run}"),
    (rf"{RUN}/failures/(?P<failure>r\d+\.q\d+\.a\d+)", stories.failure, "memory why {failure} --run {run}"),
    (rf"{RUN}/responses{PART}", response_pages.listed, RESPONSES),
    (rf"{RUN}/prompts/(?P<prompt>[0-9a-f]{{64}}){PART}", response_pages.prompt, RESPONSES),
    (rf"{RUN}/what-if", pages.what_if, "memory what-if --run {run}"),
    (rf"{RUN}/log(?:/(?P<kind>[A-Za-z]+))?{PART}", pages.log, "memory log --run {run}"),
    (rf"{RUN}/verify", pages.verified, "memory verify --run {run}"),
)
"""The path of each page, what makes it, and the command that says the same and is not given up."""


@cache
def _routes() -> list[tuple[re.Pattern[str], Builder, str]]:
    return [(re.compile(pattern), builder, command) for pattern, builder, command in ROUTES]


class View:
    """Renders pages of a site. `keep` says which links lead somewhere: all, or those of an export, which has
    `most` pages at most."""

    def __init__(
        self, site: Site, keep: Callable[[str], bool] = lambda path: True, most: int | None = None
    ) -> None:
        self.site, self.keep, self.most = site, keep, most
        self._templates = _environment()
        self._sliders: dict[str, tuple[Head, str]] = {}

    def render(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """The page at `path` ("first/causes/c48.html"), the list of responses as a `query` asks for it.
        Raises NotFoundError where there is none, StoreError where its queries take longer than SECONDS."""
        name = path.removesuffix(".html")
        if name == path:
            raise NotFoundError(f"there is no page {path}", hint="pages end in .html")
        for pattern, builder, command in _routes():
            if found := pattern.fullmatch(name):
                given = {key: value for key, value in found.groupdict().items() if value is not None}
                with self._bounded(path, command.format(**given)):
                    return self._page(path, builder, given, query or {})
        raise NotFoundError(f"there is no page {path}", hint="start at index.html")

    @contextmanager
    def _bounded(self, path: str, command: str) -> Generator[None]:
        """A browser waits for a served page; a folder of pages may take its time."""
        if not self.site.live:
            yield
            return
        error = StoreError(
            f"{path} was given up: its queries took longer than {SECONDS:g} seconds",
            hint=f"ask where nothing is given up: diagevo {command}",
        )
        with self.site.database.bounded(SECONDS, error):
            yield

    def by_own_id(self, path: str) -> str | None:
        """The page of a question or failure that its trainer calls as this path ends; None where none is."""
        found = re.fullmatch(rf"{RUN}/(?P<folder>questions|failures)/(?P<id>.+)", path, re.DOTALL)
        if found is None:
            return None
        with self._bounded(path, "runs list"):
            if found["run"] not in self.site.runs():
                return None
            log, kind = self.site.history(found["run"]).log, _KINDS[found["folder"]]
            for own_id in (found["id"], found["id"].removesuffix(".html")):
                if ours := named_so(log, found["run"], own_id).get(kind):
                    return f"{found['run']}/{found['folder']}/{ours}.html"
        return None

    def sliders(self, run: str) -> str:
        """What the what-if page of a run loads beside itself; kept until the run goes on."""
        with self._bounded(f"{run}/what-if.js", f"memory what-if --run {run}"), self.site.database.view():
            history, head = self.site.history(run), self.site.head(run)
            known = self._sliders.get(run)
            if known is None or known[0] != head:
                known = self._sliders[run] = head, sliders.script(observations(history, history.end))
            return known[1]

    def error(self, path: str, message: str, hint: str | None) -> str:
        """A page for what is not there or cannot be read."""
        return self._rendered(path, Page("error.html", "not here", {"message": message, "hint": hint}), None)

    def written(self, run: str, kind: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """The responses that a query asks for, as a file; bounded until its first rows."""
        with self._bounded(f"{run}/responses.{kind}", RESPONSES.format(run=run)):
            return response_pages.written(self.site.history(run), self.site, kind, query)

    def _page(self, path: str, builder: Builder, given: dict[str, str], query: Mapping[str, str]) -> str:
        run = given.pop("run", None)
        if run is None:
            return self._rendered(path, builder(self.site), None)
        if builder is pages.verified:  # it reads the heads outside the log before it looks at the log
            return self._rendered(path, builder(self.site.history(run), self.site), run)
        more = {"query": query} if builder in (response_pages.listed, against.compare) else {}
        with self.site.database.view():  # a page shows one moment
            return self._rendered(path, builder(self.site.history(run), self.site, **given, **more), run)

    def _rendered(self, path: str, page: Page, run: str | None) -> str:
        return self._templates.get_template(page.template).render(
            page.data
            | {
                "title": page.title,
                "run": run,
                "head": None if run is None else self.site.head(run),
                "path": path,
                "trail": page.trail,
                "page_of": posixpath.basename(path).partition(".html")[0],
                "live": self.site.live,
                "evaluation": run is not None and self.site.history(run).evaluation,
                "has_responses": run is not None and self.site.history(run).ingested is not None,
                "copied": self.most,
                "style": _style() if self.most == 1 else "",
                "policy": None if self.most is None else _policy(alone=self.most == 1),
                "view": self,
            }
        )


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("diagevo.view"),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"href": _href, "asset": _asset, "described": _described}
    environment.filters |= {
        "linked": _linked,
        "fraction": fraction,
        "percent": percent,
        "decimal": number,
        "short": short,
        "cut": cut,
        "count": count,
    }
    return environment


@cache
def _style() -> Markup:
    """The style sheet, for a page that stands alone. It is ours, and closes no element."""
    return Markup((files("diagevo.view") / "static" / "view.css").read_text(encoding="utf-8"))


@cache
def _policy(*, alone: bool) -> str:
    """What a page of an export may load: no server sends a header with it."""
    loaded = "script-src 'self'; style-src 'self'; img-src 'self'"
    if alone:
        loaded = f"style-src 'sha256-{b64encode(sha256(_style().encode()).digest()).decode()}'"
    return f"default-src 'none'; {loaded}; base-uri 'none'; form-action 'none'"


@pass_context
def _href(context: Context, target: str) -> str | None:
    """The way from this page to another one; None where that one is left out."""
    view: View = context["view"]
    return relative(context["path"], target) if view.keep(target) else None


@pass_context
def _described(context: Context, run: str, cause: str) -> str:
    """What a cause is; nothing of one that counts no more."""
    view: View = context["view"]
    history = view.site.history(run)
    known = history.state(history.end).causes.get(cause)
    return "" if known is None else known.description


@pass_context
def _linked(context: Context, text: str) -> Markup:
    """A line of the program's own with its ids linked; where few causes are named, each with its words."""
    run, found = context["run"], list(_ID.finditer(text))
    causes = {one[0] for one in found if one.lastgroup == "causes"} - {context["page_of"]}
    shown, end = Markup(), 0
    for one in found:
        folder, name = str(one.lastgroup), one[0]
        way = _href(context, f"{run}/{folder}/{name.removeprefix('r') if folder == 'rounds' else name}.html")
        link = '<span class="out id">{1}</span>' if way is None else '<a class="id" href="{0}">{1}</a>'
        link = '<span class="id">{1}</span>' if name == context["page_of"] else link
        shown += Markup("{}").format(visible(text[end : one.start()])) + Markup(link).format(way, name)
        if name in causes and len(causes) < FEW and (words := _described(context, run, name)):
            causes.remove(name)
            words = visible(shorten(words, 90, placeholder="…"))
            shown += Markup(' <span class="words-of">{}</span>').format(words)
        end = one.end()
    return shown + Markup("{}").format(visible(text[end:]))


@pass_context
def _asset(context: Context, file: str) -> str:
    """The way to a file that is no page."""
    return relative(context["path"], file)


def relative(path: str, target: str) -> str:
    return quote(posixpath.relpath(target, posixpath.dirname(path) or "."))


def cut(text: str) -> str:
    """A model's text as far as a page shows it."""
    left = len(text) - TEXT
    return text if left <= 0 else f"{text[:TEXT]}\n… {left:,} more characters in the log"


def short(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
