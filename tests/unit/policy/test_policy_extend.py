"""`extends`: what is inherited, what replaces, and mistakes that have two places."""

from pathlib import Path

import pytest

from broker.core.errors import PolicyError
from broker.policy.extend import MOST_PARENTS
from broker.policy.load import PolicySet, load_policy, mistakes
from broker.policy.schema import Match, Migrate, Mode, Policy

TEAM = """\
description: What the research team agreed on.
mode: act
match: {labels: {tier: gold}}
candidates:
  regions: {deny: ["cn-*"]}
  where: ['offer.gpu.memory_gib >= 80', 'offer.price < 50.0']
migrate: {min_saving: 30%, hold: 15m}
"""


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name.replace('_', '.')}.yaml").write_text(text)


def read(folder: Path, name: str = "p") -> Policy:
    file = folder / f"{name}.yaml"
    return load_policy(file.read_text(), str(file))


def told(folder: Path, name: str = "p") -> PolicyError:
    file = folder / f"{name}.yaml"
    (error,) = mistakes(file.read_text(), str(file))
    return error


def test_mappings_are_laid_over_each_other_and_lists_replace(tmp_path: Path) -> None:
    write(
        tmp_path,
        team_defaults=TEAM,
        p="""\
policy: p
extends: team.defaults.yaml
match: {team: nlp}
candidates:
  regions: {allow: ["us-*"]}
  where: ['offer.price < 3.0']
migrate: {hold: 1h}
""",
    )
    policy = read(tmp_path)
    assert (policy.name, policy.description, policy.mode) == ("p", "", Mode.ACT)
    assert policy.match == Match(teams=("nlp",), labels={"tier": "gold"})
    assert (policy.candidates.regions_allow, policy.candidates.regions_deny) == (("us-*",), ("cn-*",))
    assert [c.text for c in policy.candidates.where] == ["offer.price < 3.0"]
    assert (policy.migrate.min_saving, policy.migrate.hold_s) == (0.3, 3600)


def test_an_inherited_condition_is_told_where_it_stands(tmp_path: Path) -> None:
    write(tmp_path, team_defaults=TEAM, p="policy: p\nextends: team.defaults.yaml\n")
    assert [c.place for c in read(tmp_path).candidates.where] == [f"{tmp_path}/team.defaults.yaml:6"] * 2


def test_migrate_never_replaces_the_mapping_and_is_replaced_by_one(tmp_path: Path) -> None:
    write(
        tmp_path,
        team_defaults=TEAM,
        still="policy: still\nextends: team.defaults.yaml\nmigrate: never\n",
        again="policy: again\nextends: still.yaml\nmigrate: {hold: 5m}\n",
    )
    assert read(tmp_path, "still").migrate == Migrate(enabled=False)
    assert read(tmp_path, "again").migrate == Migrate(hold_s=300)


def test_the_hash_is_of_the_file_alone_or_of_all_that_it_extends(tmp_path: Path) -> None:
    child = "policy: p\nextends: team.defaults.yaml\n"
    write(tmp_path, team_defaults="extends: firm.defaults.yaml\n", firm_defaults="mode: act\n", p=child)
    first = read(tmp_path).sha256
    write(tmp_path, firm_defaults="mode: act\n# again\n")
    second = read(tmp_path).sha256
    write(tmp_path, team_defaults="extends: firm.defaults.yaml\n\n")
    third = read(tmp_path).sha256
    write(tmp_path, p=f"{child}\n")
    assert len({first, second, third, read(tmp_path).sha256}) == 4
    write(tmp_path, team_defaults="extends: firm.defaults.yaml\n", firm_defaults="mode: act\n", p=child)
    assert read(tmp_path).sha256 == first


@pytest.mark.parametrize(
    ("parent", "message"),
    [
        ("mode: off\n", "extends: team.defaults.yaml has a mistake: {}/team.defaults.yaml:1:7: mode: 'off' is not one of observe, act"),
        ("mod: act\nobjective: x\n", "extends: team.defaults.yaml has 2 mistakes: {}/team.defaults.yaml:1:1: unknown key mod"),
        ("policy: team\n", "extends: team.defaults.yaml has a mistake: {}/team.defaults.yaml:1:1: defaults have no name"),
        ("a: [", "extends: team.defaults.yaml has a mistake: {}/team.defaults.yaml:1:5: not YAML: expected the node content, but found '<stream end>'"),
        ("extends: team.defaults.yaml\n", "extends: team.defaults.yaml has a mistake: {}/team.defaults.yaml:1:10: extends goes in a circle: team.defaults.yaml, team.defaults.yaml"),
        ("extends: p.yaml\n", "extends: team.defaults.yaml has a mistake: {}/team.defaults.yaml:1:10: extends goes in a circle: p.yaml, team.defaults.yaml, p.yaml"),
        ("extends: gone.yaml\n", "extends: team.defaults.yaml has a mistake: {}/team.defaults.yaml:1:10: extends: cannot read {}/gone.yaml: No such file or directory"),
    ],
)  # fmt: skip
def test_a_parents_mistake_has_both_places(tmp_path: Path, parent: str, message: str) -> None:
    write(tmp_path, team_defaults=parent, p="policy: p\nextends: team.defaults.yaml\n")
    error = told(tmp_path)
    assert (str(error.place), error.message) == (
        f"{tmp_path}/p.yaml:2:10",
        message.replace("{}", str(tmp_path)),
    )


def test_a_parent_that_is_not_there(tmp_path: Path) -> None:
    write(tmp_path, p="policy: p\nextends: team.defaults.yaml\n")
    assert str(told(tmp_path)).splitlines()[0] == (
        f"{tmp_path}/p.yaml:2:10: extends: cannot read {tmp_path}/team.defaults.yaml: No such file or directory"
    )


@pytest.mark.parametrize("name", ["../p.yaml", "/etc/passwd", "team", "a/b.yaml", ".yaml", "x.yaml\n"])
def test_a_parent_is_a_file_of_the_same_folder(tmp_path: Path, name: str) -> None:
    write(tmp_path, p=f"policy: p\nextends: {name!r}\n".replace("'x.yaml\\n'", '"x.yaml\\n"'))
    assert "is not the name of a policy file" in told(tmp_path).message


def test_a_contradiction_with_what_is_inherited_has_both_places(tmp_path: Path) -> None:
    write(
        tmp_path,
        team_defaults="place: {skip_spot_when: ['!job.has_checkpoint']}\n",
        p="policy: p\nextends: team.defaults.yaml\nplace: {order: [on_demand]}\n",
    )
    error = told(tmp_path)
    assert error.message == (
        f"skip_spot_when is never asked: spot is not in order, as {tmp_path}/p.yaml:2:10 extends it"
    )
    assert str(error.place) == f"{tmp_path}/team.defaults.yaml:1:9"


def test_families_have_an_end(tmp_path: Path) -> None:
    for n in range(MOST_PARENTS + 1):
        parent = f"extends: g{n + 1}.defaults.yaml\n" if n < MOST_PARENTS else "mode: act\n"
        (tmp_path / f"g{n}.defaults.yaml").write_text(parent)
    write(tmp_path, p="policy: p\nextends: g1.defaults.yaml\n")
    assert read(tmp_path).mode is Mode.ACT
    write(tmp_path, p="policy: p\nextends: g0.defaults.yaml\n")
    assert f"extends goes on for more than {MOST_PARENTS} files" in told(tmp_path).message


def test_a_folder_is_read_again_when_a_parent_changes_and_survives_its_mistakes(tmp_path: Path) -> None:
    write(
        tmp_path, team_defaults="mode: act\n", p="policy: p\nextends: team.defaults.yaml\n", q="policy: q\n"
    )
    policies = PolicySet(tmp_path)
    assert list(policies.policies) == ["p", "q"], "defaults decide for nobody"
    assert not policies.reload()
    write(tmp_path, team_defaults="mode: act\nprecedence: 3\n")
    assert policies.reload().changed == ("p",)
    assert policies.get("p").precedence == 3
    write(tmp_path, team_defaults="mode: act\nprecedence: high\n")
    assert [e.place and e.place.file for e in policies.reload().errors] == [f"{tmp_path}/p.yaml"]
    assert policies.get("p").precedence == 3
    (tmp_path / "team.defaults.yaml").unlink()
    assert policies.reload().errors
    assert policies.get("p").precedence == 3
    write(tmp_path, team_defaults="precedence: 4\n")
    policies.reload()
    assert (policies.get("p").precedence, policies.errors) == (4, ())
