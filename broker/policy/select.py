"""Which policy speaks for a job.

    the job names one                        that one, whatever its match and mode; whether the submitter may
                                             name it is asked once, when the job comes (`refuse_name`)
    acting policies that match               the highest precedence; a tie is an error
    `default`, if it acts
    observing policies that match            the highest precedence; of several, the one that decided for the job
                                             before, else the first by name
    `default`
    none of these                            an error

So a policy in `observe` never competes with an acting one: beside it, it places nothing and only records
(`beside`). Where no acting policy speaks for a job, an observing one places and recovers it, and only records
moves, pauses and stops; those that match beside it record too.

A job for which this ends in an error keeps the policy that decided for it before, as long as that one is there: what
runs does not wait for a mistake in a file. A job that trained and whose policy is gone is recovered by `rescuer`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from broker.core.errors import BrokerError, NotFound, PolicyError
from broker.core.offer import Offer
from broker.core.spec import JobSpec
from broker.core.yaml_text import did_you_mean
from broker.policy.schema import Candidates, Match, Mode, Policy
from broker.policy.sections import DEFAULT_NAME


@dataclass(frozen=True)
class Choice:
    """Who decides for a job.

    Attributes:
        instead: Why it is not chosen by the rules above, in words; None when it is.
    """

    policy: Policy
    instead: str | None = None

    @property
    def only_rescues(self) -> bool:
        """It is no policy of the folder, and the job's own comes back to it as soon as it is there."""
        return self.policy.file == _NO_FILE


_NO_FILE = ""
RESCUER_NAME = "(none)"  # no name that a file could give


def matches(match: Match, spec: JobSpec, project_id: str) -> bool:
    """Whether every part that is given holds for the job."""
    return (
        (not match.teams or spec.team in match.teams)
        and (not match.priorities or spec.priority in match.priorities)
        and (not match.projects or project_id in match.projects)
        and all(spec.labels.get(key) == value for key, value in match.labels.items())
    )


def select(policies: Iterable[Policy], spec: JobSpec, project_id: str, former: str | None = None) -> Policy:
    """The policy that decides for a job.

    Args:
        former: Name of the policy that decided for it before.

    Raises:
        NotFound: the job names a policy that is not there, or no policy speaks for it.
        PolicyError: two acting policies with the same precedence match.
    """
    known = {policy.name: policy for policy in policies}
    if spec.policy is not None:
        return _named(known, spec.policy)
    default = known.get(DEFAULT_NAME)
    matching = [p for p in known.values() if p is not default and matches(p.match, spec, project_id)]
    acting = [p for p in matching if p.mode is Mode.ACT]
    if acting:
        best = _highest(acting)
        if len(best) > 1:
            raise _tie(best, spec)
        return best[0]
    if default is not None and default.mode is Mode.ACT:
        return default
    if matching:
        best = _highest(matching)
        return next((policy for policy in best if policy.name == former), best[0])
    if default is not None:
        return default
    raise NotFound(
        f"no policy speaks for job {spec.name}: none matches, and there is none named {DEFAULT_NAME}; "
        "name one in the job file (policy: NAME), or widen a match"
    )


def refuse_name(policy: Policy, role: str) -> str | None:
    """Why a job of somebody with that role may not name a policy; None when it may."""
    if policy.selectable_by is None or role in policy.selectable_by:
        return None
    who = " and ".join(policy.selectable_by) or "nobody"
    return (
        f"policy: {policy.name} may be chosen by {who}, and your role is {role}; "
        "leave policy out, and what matches the job decides"
    )


def choose(
    policies: Iterable[Policy], spec: JobSpec, project_id: str, former: str | None, trained_on: Offer | None
) -> Choice:
    """Who decides for a job that was taken in already: `select`, or the next best where that is an error.

    Args:
        former: Name of the policy that decided for it before.
        trained_on: Where it trained last, if it has lost its place.

    Raises:
        NotFound, PolicyError: as `select`, and neither of these two can stand in.
    """
    known = {policy.name: policy for policy in policies}
    try:
        return Choice(select(known.values(), spec, project_id, former))
    except BrokerError as error:
        if former in known:
            return Choice(known[former], f"{former} goes on deciding: {in_one_line(error)}")
        if trained_on is None:
            raise
        return Choice(
            rescuer(trained_on), f"recovered where it trained, without a policy: {in_one_line(error)}"
        )


def in_one_line(error: BrokerError) -> str:
    """What is wrong and what to do about it, for a job's reason."""
    return "; ".join(str(error).splitlines())


def rescuer(trained_on: Offer) -> Policy:
    """Recovers a job whose policy is gone: the language's defaults, nowhere but where the job has been already.

    What the lost policy allowed is not known any more. The cloud and region where it put the job are.
    """
    here = Candidates(clouds=(trained_on.cloud,), regions_allow=(trained_on.region,))
    return Policy(RESCUER_NAME, "0" * 64, _NO_FILE, candidates=here)


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


def _highest(policies: Sequence[Policy]) -> list[Policy]:
    """Those with the highest precedence, by name."""
    top = max(policy.precedence for policy in policies)
    return sorted((p for p in policies if p.precedence == top), key=lambda policy: policy.name)


def _tie(policies: Sequence[Policy], spec: JobSpec) -> PolicyError:
    names = " and ".join(f"{policy.name} ({policy.file})" for policy in policies)
    return PolicyError(
        f"job {spec.name} is matched by {names} with the same precedence {policies[0].precedence}",
        hint="raise the precedence of one of them",
    )
