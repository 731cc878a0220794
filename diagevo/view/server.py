"""The pages over HTTP: read-only, on loopback unless asked otherwise, and then only with a token."""

import hashlib
import hmac
import ipaddress
import socket
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode, urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diagevo.errors import DamagedError, DiagEvoError, NotFoundError
from diagevo.memory.log.database import Database
from diagevo.progress import PROGRESS
from diagevo.view.page import Site
from diagevo.view.response_pages import KINDS
from diagevo.view.site import View

HEAD_BYTES = 16_384
CONNECTIONS = 500
"""Maximum concurrent requests; more are answered with 503."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on that address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def names(host: str) -> frozenset[str]:
    """The Host names under which a browser may reach a server that listens on `host`."""
    own = {"localhost", "127.0.0.1", "::1"}
    return frozenset(own if is_loopback(host) else own | {host, socket.gethostname(), socket.getfqdn()})


def is_ours(header: str, hosts: frozenset[str]) -> bool:
    """Whether a Host header names this server. A foreign name that resolves to this address (DNS rebinding)
    is not ours; an IP address cannot be rebound. The port is ignored: a tunnel has another one."""
    try:
        name = urlsplit(f"//{header}").hostname
    except ValueError:
        return False
    if name is None:
        return False
    if name in hosts:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return any(not is_loopback(host) for host in hosts)


def served(app: ASGIApp, **more: Any) -> uvicorn.Server:
    """A server of the pages, with limits on connections: `--host` opens the port to machines that need no
    token to connect. `more` goes to uvicorn."""
    config = uvicorn.Config(
        app,
        http="h11",  # its other protocol does not limit the size of a request's headers
        ws="none",
        lifespan="off",
        server_header=False,
        h11_max_incomplete_event_size=HEAD_BYTES,
        limit_concurrency=CONNECTIONS,
        **more,
    )
    return uvicorn.Server(config)


def application(database: Database, *, host: str, token: str) -> Starlette:
    """The site as an ASGI application, listening on `host`.

    `token` grants access once; after that a cookie does.
    """
    view = View(Site(database, live=True))

    def page(request: Request) -> Response:
        path = request.path_params["path"] or "index.html"
        try:
            try:
                return HTMLResponse(view.render(path, request.query_params))
            except NotFoundError:
                if (ours := view.by_own_id(path)) is not None:
                    return RedirectResponse(f"/{ours}", 303)
                raise
        except NotFoundError as error:
            return HTMLResponse(view.error(path, error.message, error.hint), 404)
        except DamagedError as error:
            return HTMLResponse(view.error(path, f"FAULT: {error.message}", error.hint), 500)
        except DiagEvoError as error:
            return HTMLResponse(view.error(path, error.message, error.hint), 409)

    def sliders(request: Request) -> Response:
        try:
            return Response(view.sliders(request.path_params["run"]), media_type="text/javascript")
        except DiagEvoError as error:
            return Response(error.message, 404 if isinstance(error, NotFoundError) else 500)

    def responses(request: Request) -> Response:
        """All responses selected on the list's page, with whole texts, as a file."""
        run, kind = request.path_params["run"], request.url.path.rpartition(".")[2]
        try:
            parts = view.written(run, kind, request.query_params)
        except DiagEvoError as error:
            found = 404 if isinstance(error, NotFoundError) else 409
            return PlainTextResponse(f"{error.message}: {error.hint}", found)
        named = {"Content-Disposition": f'attachment; filename="{run}-responses.{kind}"'}
        return StreamingResponse(parts, media_type=KINDS[kind], headers=named)

    def progress(request: Request) -> Response:
        """The run's last progress; 304 if nothing is new, 204 if there is none yet."""
        run = request.path_params["run"]
        if run not in view.site.runs():
            return Response(status_code=404)
        file = view.site.folder_of(run) / PROGRESS
        if not file.is_file():
            return Response(status_code=204)
        tag = f'"{file.stat().st_mtime_ns:x}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return FileResponse(
            file, media_type="application/json", headers={"ETag": tag, "Cache-Control": "no-cache"}
        )

    static = StaticFiles(directory=str(files("diagevo.view") / "static"))
    routes = [
        Mount("/static", static),
        Route("/{run}/progress.json", progress, methods=["GET"]),
        *(Route(f"/{{run}}/responses.{kind}", responses, methods=["GET"]) for kind in KINDS),
        Route("/{run}/what-if.js", sliders, methods=["GET"]),
        Route("/{path:path}", page, methods=["GET"]),
    ]
    middleware = [
        Middleware(_Guard, hosts=names(host), token=token),
        Middleware(GZipMiddleware, minimum_size=2000),
    ]
    return Starlette(routes=routes, middleware=middleware)


class _Guard:
    """Checks host, method and token before anything is read; sets headers on every answer."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str], token: str) -> None:
        self.app, self.hosts, self.token = app, hosts, token
        # Not the token itself: someone who reads the cookie cannot pass on the address. The name has a part
        # of its own, since the ports of a machine share their cookies.
        self.value = hashlib.sha256(f"diagevo view {token}".encode()).hexdigest()
        self.cookie = f"diagevo-{hashlib.sha256(self.value.encode()).hexdigest()[:8]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *own]}
            await send(message)

        request = Request(scope)
        refused = self._refused(request)
        await (refused or self.app)(scope, receive, guarded)

    def _refused(self, request: Request) -> Response | None:
        if not is_ours(request.headers.get("host", ""), self.hosts):
            return Response("This name is not served here.", 400, media_type="text/plain")
        if request.method not in ("GET", "HEAD"):
            return Response("Read-only.", 405, headers={"Allow": "GET, HEAD"}, media_type="text/plain")
        if hmac.compare_digest(request.cookies.get(self.cookie, "").encode(), self.value.encode()):
            return None
        given = request.query_params.get("token", "")
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            return Response("Open the address with its token.", 403, media_type="text/plain")
        # The token leaves the address bar, the history and what a copied link says. A path that begins with
        # two slashes would name another host.
        rest = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
        query = f"?{urlencode(rest)}" if rest else ""
        answer = RedirectResponse("/" + request.url.path.lstrip("/\\") + query, 303)
        answer.set_cookie(self.cookie, self.value, httponly=True, samesite="strict")
        return answer
