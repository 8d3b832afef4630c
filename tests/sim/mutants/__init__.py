"""Broken brokers: each one line wrong, switched on in tests only. A checker that lets one live is no checker.

Sorted as the rules on the page of the protocol are.
"""

from tests.sim.mutants.collecting import COLLECTING
from tests.sim.mutants.deciding import DECIDING
from tests.sim.mutants.ending import ENDING
from tests.sim.mutants.handing_over import HANDING_OVER
from tests.sim.mutants.renting import RENTING

MUTANTS = {**RENTING, **ENDING, **HANDING_OVER, **COLLECTING, **DECIDING}
