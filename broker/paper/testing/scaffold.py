"""A first policy and its test, for somebody to change: `broker policy new`."""

from string import Template
from typing import Final

_POLICY: Final = Template("""\
# $name: say here for whom it is and what it does.
#
# It observes until you write `mode: act`: jobs are placed and recovered, moves are only recorded.

policy: $name
description: Spot first; leave a dear place when a cheaper one can be had.
mode: observe
match: {labels: {policy: $name}}  # the jobs that it speaks for; a job may also name it: `policy: $name`
precedence: 10

candidates:
  max_quote_age: 10m              # an older price justifies no move

objective: cheapest               # or cheapest_by_deadline

place:
  order: [owned, spot, on_demand]
  skip_spot_when:
    - '!job.has_checkpoint'       # an interruption would cost the whole run

migrate:
  min_saving: 20%                 # of the cost to finish here, with the move counted in
  min_saving_usd: 25
  max_payback: 3h
  hold: 10m                       # must stay true this long, on fresh prices
  cooldown: 2h                    # since the job's last move
""")

_TEST: Final = Template("""\
# What $name must answer, played against prices and stock over time: broker policy test .

policy: $name.yaml
mode: act                         # as if it acted, so that moves are carried out and billed

given:
  job: {gpus: H100:8, work: 40h, checkpoint: 10m, checkpoint_size: 80GiB}
  prices:                         # dollars an hour x how long; the last one holds on
    aws/use1-az6/p5.48xlarge/spot: "32.0x1h 61.0"
    aws/use1-az6/p5.48xlarge/on_demand: "55.04"
    gcp/us-central1-a/a3-highgpu-8g/spot: "35.0"

cases:
  - name: starts on the cheapest spot and leaves it when it becomes dear
    expect:
      - {at: 0m, decision: place, to: aws/*/spot}
      - {at: 65m, decision: stay, why: migrate.hold}
      - {at: 70m, decision: move, to: gcp/*}
    finally: {finished: true, moves: 1, cost_below: 1600}

  - name: does not move for a price that comes and goes
    prices: {aws/use1-az6/p5.48xlarge/spot: "32.0x1h 61.0x7m 32.0"}
    never:
      - {decision: move}
    finally: {finished: true}

  - name: goes elsewhere when its capacity is taken back
    stock: {aws/use1-az6/p5.48xlarge/spot: "4x3h 0"}
    prices: {aws/use1-az6/p5.48xlarge/spot: "32.0"}
    expect:
      - {at: 3h, decision: place, to: gcp/*}
    finally: {finished: true, interruptions: 1, redone_below: 10m}

  - name: a job that cannot resume stays off spot
    job: {checkpoint: none, market: [spot, on_demand]}
    expect:
      - {at: 0m, decision: place, to: "*/on_demand", why: job.has_checkpoint}
    never:
      - {to: "*/spot"}
""")


def policy_text(name: str) -> str:
    """A policy that observes."""
    return _POLICY.substitute(name=name)


def cases_text(name: str) -> str:
    """Its test, which passes."""
    return _TEST.substitute(name=name)
