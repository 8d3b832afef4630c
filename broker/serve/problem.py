"""Errors over HTTP: ``application/problem+json`` (RFC 9457) from the tree in `broker.core.errors`.

`code` is stable and for programs; `detail`, `place` and `hint` are for people and are what the CLI prints.
"""

import errno
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from broker.core import errors
from broker.core.wrong_value import of_one_value, words

MEDIA_TYPE = "application/problem+json"

log = structlog.get_logger(__name__)


class Unauthenticated(errors.AuthError):
    """No token, or one that is unknown or revoked."""


class Gone(errors.BrokerError):
    """A node whose row is final calls: it may end itself."""

    code = "gone"


class TooLarge(errors.UsageError):
    """More bytes than we take."""

    code = "too_large"


# First match wins, so the narrower class comes first.
_STATUS: tuple[tuple[type[errors.BrokerError], HTTPStatus], ...] = (
    (Unauthenticated, HTTPStatus.UNAUTHORIZED),
    (Gone, HTTPStatus.GONE),
    (TooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (errors.UsageError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (errors.NotFound, HTTPStatus.NOT_FOUND),
    (errors.AuthError, HTTPStatus.FORBIDDEN),
    (errors.Conflict, HTTPStatus.CONFLICT),
    (errors.Refused, HTTPStatus.FORBIDDEN),
    (errors.ProviderError, HTTPStatus.BAD_GATEWAY),
    (errors.StoreError, HTTPStatus.BAD_GATEWAY),
    (errors.DiskFull, HTTPStatus.INSUFFICIENT_STORAGE),
)


def status_of(error: errors.BrokerError) -> HTTPStatus:
    """The HTTP status of an error of ours."""
    return next(
        (status for kind, status in _STATUS if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR
    )


def problem(status: HTTPStatus, code: str, detail: str, **more: Any) -> JSONResponse:
    """One problem document."""
    body = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "code": code,
        "detail": detail,
    }
    headers = {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else None
    shown = {name: value for name, value in more.items() if value is not None}
    return JSONResponse(body | shown, status, headers, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer every error of `app` as a problem document."""

    @app.exception_handler(errors.BrokerError)
    async def ours(_request: Request, error: errors.BrokerError) -> JSONResponse:
        more: dict[str, Any] = {}
        detail = str(error)
        if isinstance(error, errors.UsageError):
            detail = error.message
            more = {"place": asdict(error.place) if error.place else None, "hint": error.hint}
        return problem(status_of(error), error.code, detail, exit_code=error.exit_code, **more)

    @app.exception_handler(OSError)
    async def file(request: Request, error: OSError) -> JSONResponse:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return await ours(
                request, errors.DiskFull(f"no room left for {error.filename or 'a file of the daemon'}")
            )
        return await bug(request, error)

    @app.exception_handler(ClientDisconnect)
    async def left(request: Request, _error: ClientDisconnect) -> JSONResponse:
        log.info("request.left", path=request.url.path)
        return problem(
            HTTPStatus.BAD_REQUEST, "usage", "the request ended before its body did"
        )  # nobody reads it

    @app.exception_handler(RequestValidationError)
    async def shape(_request: Request, error: RequestValidationError) -> JSONResponse:
        path, mistakes = of_one_value(error.errors())
        where = ".".join(str(part) for part in path)
        message, hint = words(mistakes, table="an object")
        return problem(
            HTTPStatus.UNPROCESSABLE_ENTITY, "usage", f"{where}: {message}", exit_code=2, hint=hint
        )

    @app.exception_handler(HTTPException)
    async def plain(_request: Request, error: HTTPException) -> JSONResponse:
        status = HTTPStatus(error.status_code)
        code = {404: "not_found", 405: "usage"}.get(error.status_code, "error")
        return problem(status, code, str(error.detail))

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> JSONResponse:
        log.error("request.failed", path=request.url.path, exc_info=error)
        return problem(
            HTTPStatus.INTERNAL_SERVER_ERROR, "error", "the daemon failed on this request; its log says why"
        )
