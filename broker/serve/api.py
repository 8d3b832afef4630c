"""The daemon's HTTP face: ``/api/v1`` for people, ``/agent/v1`` for nodes, health and metrics for operators."""

from fastapi import FastAPI

from broker import __version__
from broker.serve import (
    health,
    metrics,
    problem,
    routes_admin,
    routes_agent,
    routes_audit,
    routes_events,
    routes_jobs,
    routes_market,
    routes_nodes,
    routes_quarantine,
)
from broker.serve.body_limit import BODY_MAX_BYTES, BodyLimit
from broker.serve.services import Services


def create_app(services: Services) -> FastAPI:
    """The application over the daemon's parts."""
    app = FastAPI(
        title="GPU capacity broker",
        version=__version__,
        description=(
            "Times are milliseconds since 1970, money is micro-USD, rates are micro-USD an hour. "
            "Errors are `application/problem+json` with a stable `code`. "
            f"A JSON body may have {BODY_MAX_BYTES >> 20} MiB."
        ),
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.state.services = services
    problem.install(app)
    app.add_middleware(BodyLimit)
    for module in (
        routes_jobs,
        routes_market,
        routes_quarantine,
        routes_nodes,
        routes_events,
        routes_admin,
        routes_audit,
        routes_agent,
        health,
        metrics,
    ):
        app.include_router(module.router)
    return app
