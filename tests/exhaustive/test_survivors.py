"""What is explained in `SURVIVORS.md` is about code that is there."""

import re

from tests.exhaustive.mutation import EXPLAINED, MUTATED, ROOT, explanations, squeezed

HEADING = re.compile(r"^(broker/\S+\.py), `(?:\w+\.)?(\w+)`$")


def test_every_explanation_is_of_a_line_that_is_still_there() -> None:
    changes = 0
    for heading, parts in explanations().items():
        found = HEADING.match(heading)
        if found is None:
            continue  # a section of prose
        file, function = found.groups()
        assert file in MUTATED, heading
        code = (ROOT / file).read_text()
        assert f"def {function}(" in code, heading
        for part in parts:
            if part.startswith("-"):
                changes += 1
                before = part[1:].partition("+")[0]
                assert before in squeezed(code), f"{heading}: no longer there: {before}"
    assert changes == EXPLAINED.read_text().count("\n    - ")
