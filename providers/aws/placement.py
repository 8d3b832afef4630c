"""What EC2 says about obtaining spot capacity: Spot placement scores, from 1 to 10.

A score belongs to a whole request, and EC2 limits how many *new* requests an account may make in 24 hours (the number
is not published); one that was made before may be repeated. So the requests are few and always the same: for each
region one a group of instance types, for one instance, with each zone scored by itself, and none is repeated within six
hours. A region is asked alone since EC2 tells no more than the ten best zones of a request.

A request that names fewer than three types is always scored low, so types are asked for together: those with the same
GPU, and where a GPU has fewer than three types, those of the same generation of EC2's (p5, p5e, p5en). Where these are
still fewer than three, nothing is asked: a hint that is always low says nothing. The score of a group is told for
each of its types that is sold in the zone, and means that *one of the group* can be had there.

Sources: GetSpotPlacementScores in botocore's model of EC2; EC2 user guide, "Spot placement score", limitations.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from botocore.exceptions import ClientError

from broker.core.availability import Availability, Signal, Unanswered, answered
from broker.core.errors import Denied, ProviderDown, ProviderError
from broker.core.offer import Market
from broker.core.ports import Clock
from broker.core.time import HOUR_S, MS
from providers.aws.catalogue import Catalogue, Catalogues
from providers.aws.clients import Clients
from providers.aws.errors import translated
from providers.aws.settings import AwsOptions

SOURCE = "aws:placement_scores"
LIMIT_REACHED = "MaxConfigLimitExceeded"

_EVERY_MS = 6 * HOUR_S * MS
_FEWEST_TYPES = 3
_MOST_REQUESTS = 40  # our own bound: five groups in eight regions; what is configured beyond is not asked
_GENERATION = re.compile(r"[a-z]+\d+")


@dataclass(frozen=True)
class Question:
    """One request configuration: a group of types in a region, sorted, for one instance."""

    region: str
    types: tuple[str, ...]

    @property
    def parameters(self) -> dict[str, Any]:
        """Of `get_spot_placement_scores`."""
        return {
            "InstanceTypes": list(self.types),
            "TargetCapacity": 1,
            "SingleAvailabilityZone": True,
            "RegionNames": [self.region],
        }


@dataclass(frozen=True)
class Answer:
    """What EC2 said last.

    Attributes:
        asked_at_ms: When we asked last, whatever became of it.
        observed_at_ms: When it gave these scores.
        scores: By zone id; empty when it never answered.
    """

    asked_at_ms: int
    observed_at_ms: int = 0
    scores: Mapping[str, int] = field(default_factory=dict)


_NEVER = Answer(asked_at_ms=0)


class PlacementScores:
    """Asks seldom, and tells again what was answered, with its date."""

    def __init__(self, options: AwsOptions, clients: Clients, catalogues: Catalogues, clock: Clock) -> None:
        self._options = options
        self._clients = clients
        self._catalogues = catalogues
        self._clock = clock
        self._answers: dict[Question, Answer] = {}

    def hints(self) -> list[Availability | Unanswered]:
        """The scores of every spot offer that has one; nothing when they are switched off.

        Raises:
            Denied: we may not ask, and there is no score. Told once, and then again after six hours.
            ProviderError: a call failed, and there is no score; what was not asked is asked next time.
        """
        if not self._options.placement_scores:
            return []
        catalogues = [self._catalogues.of(region) for region in self._options.regions]
        wanted = [
            Question(catalogue.region, group)
            for catalogue in catalogues
            for group in sorted(set(groups(catalogue).values()))
        ][:_MOST_REQUESTS]
        self._answers = {question: self._answers.get(question, _NEVER) for question in wanted}
        now_ms = self._clock.now_ms()
        failures = self._ask_due(now_ms)
        return answered([hint for catalogue in catalogues for hint in self._hints(catalogue)], failures)

    def _ask_due(self, now_ms: int) -> list[ProviderError]:
        failures: list[ProviderError] = []
        silent: set[str] = set()
        for question, known in list(self._answers.items()):
            if now_ms - known.asked_at_ms < _EVERY_MS or question.region in silent:
                continue
            try:
                self._ask(question, known, now_ms)
            except ProviderDown as failure:
                failures.append(failure)
                silent.add(question.region)  # each call may take a whole time-out
            except ProviderError as failure:
                # The account or its rate: the other requests would only say the same.
                return [*failures, failure]
        return failures

    def _ask(self, question: Question, known: Answer, now_ms: int) -> None:
        try:
            with translated(f"asking for placement scores in {question.region}"):
                scores = self._scores(question)
        except Denied:
            # Rights are those of the account: the other requests would only say the same again.
            self._answers = {q: replace(answer, asked_at_ms=now_ms) for q, answer in self._answers.items()}
            raise
        said = replace(known, asked_at_ms=now_ms) if scores is None else Answer(now_ms, now_ms, scores)
        self._answers[question] = said

    def _scores(self, question: Question) -> dict[str, int] | None:
        """By zone id; None when no new request may be made for now."""
        pages = self._clients.ec2(question.region).get_paginator("get_spot_placement_scores")
        try:
            rows = [
                row for page in pages.paginate(**question.parameters) for row in page["SpotPlacementScores"]
            ]
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == LIMIT_REACHED:
                return None
            raise
        return {row["AvailabilityZoneId"]: row["Score"] for row in rows if row.get("AvailabilityZoneId")}

    def _hints(self, catalogue: Catalogue) -> Iterator[Availability]:
        for name, group in groups(catalogue).items():
            answer = self._answers.get(Question(catalogue.region, group), _NEVER)
            for zone in catalogue.zones.get(name, ()):
                if zone in answer.scores:
                    key, score = catalogue.offer(name, zone, Market.SPOT).key, float(answer.scores[zone])
                    yield Availability(
                        key, Signal.PLACEMENT_SCORE, score, score, answer.observed_at_ms, SOURCE
                    )


def groups(catalogue: Catalogue) -> dict[str, tuple[str, ...]]:
    """With which types each type is asked for, sorted; a type that is missing is not asked for."""
    by_gpu: dict[str, set[str]] = {}
    by_generation: dict[str, set[str]] = {}
    for name, kind in catalogue.types.items():
        by_gpu.setdefault(kind.gpu, set()).add(name)
        by_generation.setdefault(_generation(name), set()).add(name)
    found = {}
    for name, kind in catalogue.types.items():
        same = by_gpu[kind.gpu]
        group = same if len(same) >= _FEWEST_TYPES else by_generation[_generation(name)]
        if len(group) >= _FEWEST_TYPES:
            found[name] = tuple(sorted(group))
    return found


def _generation(name: str) -> str:
    """``p5`` of ``p5en.48xlarge``."""
    found = _GENERATION.match(name)
    return found.group() if found else name
