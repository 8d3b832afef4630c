"""Which policy speaks for a job.

    the job names one                        that one, whatever its match and mode
    acting policies that match               the highest precedence; a tie is an error
    `default`, if it acts
    observing policies that match            the highest precedence; a tie is an error
    `default`
    none of these                            an error

So a policy in `observe` never competes with an acting one: beside it, it places nothing and only records
(`beside`). Where no acting policy speaks for a job, an observing one places and recovers it, and only records
moves, pauses and stops.
"""

from collections.abc import Iterable, Sequence

from broker.core.errors import NotFound, PolicyError
from broker.core.spec import JobSpec
from broker.core.yaml_text import did_you_mean
from broker.policy.schema import Match, Mode, Policy
from broker.policy.sections import DEFAULT_NAME


def matches(match: Match, spec: JobSpec, project_id: str) -> bool:
    """Whether every part that is given holds for the job."""
    return (
        (not match.teams or spec.team in match.teams)
        and (not match.priorities or spec.priority in match.priorities)
        and (not match.projects or project_id in match.projects)
        and all(spec.labels.get(key) == value for key, value in match.labels.items())
    )


def select(policies: Iterable[Policy], spec: JobSpec, project_id: str) -> Policy:
    """The policy that decides for a job.

    Raises:
        NotFound: the job names a policy that is not there, or no policy speaks for it.
        PolicyError: two policies with the same precedence match.
    """
    known = {policy.name: policy for policy in policies}
    if spec.policy is not None:
        return _named(known, spec.policy)
    default = known.get(DEFAULT_NAME)
    matching = [p for p in known.values() if p is not default and matches(p.match, spec, project_id)]
    acting = [p for p in matching if p.mode is Mode.ACT]
    if acting:
        return _highest(acting, spec)
    if default is not None and default.mode is Mode.ACT:
        return default
    if matching:
        return _highest(matching, spec)
    if default is not None:
        return default
    raise NotFound(
        f"no policy speaks for job {spec.name}: none matches, and there is none named {DEFAULT_NAME}; "
        "name one in the job file (policy: NAME), or widen a match"
    )


def beside(policies: Iterable[Policy], chosen: Policy, spec: JobSpec, project_id: str) -> list[Policy]:
    """Observing policies that match the job without deciding for it: what they would do is only recorded."""
    return [
        policy
        for policy in policies
        if policy.mode is Mode.OBSERVE
        and policy.name not in (chosen.name, DEFAULT_NAME)
        and matches(policy.match, spec, project_id)
    ]


def _named(known: dict[str, Policy], name: str) -> Policy:
    if name in known:
        return known[name]
    hint = did_you_mean(name, known) or f"policies are {', '.join(sorted(known)) or '(none)'}"
    raise NotFound(f"there is no policy named {name}; {hint}")


def _highest(policies: Sequence[Policy], spec: JobSpec) -> Policy:
    top = max(policy.precedence for policy in policies)
    best = [policy for policy in policies if policy.precedence == top]
    if len(best) > 1:
        names = " and ".join(f"{policy.name} ({policy.file})" for policy in best)
        raise PolicyError(
            f"job {spec.name} is matched by {names} with the same precedence {top}",
            hint="raise the precedence of one of them",
        )
    return best[0]
