"""`broker policy check` over files and folders."""

from pathlib import Path

from broker.policy.diagnose import check, check_file, mistakes_as_json


def test_a_folder_with_mistakes(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("policy: a\nmode: off\nplace: {order: [spot, spt]}\n")
    (tmp_path / "b.yaml").write_text("policy: same\n")
    (tmp_path / "c.yaml").write_text("policy: same\n")
    checked = check([tmp_path, tmp_path / "b.yaml", tmp_path / "gone.yaml"])
    errors = checked.errors
    assert [e.message for e in errors] == [
        "mode: 'off' is not one of observe, act",
        "place.order[1]: 'spt' is not one of owned, spot, on_demand, reserved",
        f"{tmp_path}/c.yaml: the name same is taken by {tmp_path}/b.yaml",
        f"cannot read {tmp_path}/gone.yaml: No such file or directory",
    ]
    assert mistakes_as_json(errors)[1] == {
        "code": "policy_file",
        "message": "place.order[1]: 'spt' is not one of owned, spot, on_demand, reserved",
        "file": f"{tmp_path}/a.yaml",
        "line": 3,
        "column": 23,
        "hint": "did you mean spot?",
    }
    assert mistakes_as_json(errors)[2]["line"] is None
    assert checked.count == "4 policies, 4 mistakes"


def test_no_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("policy: a\n")
    assert check([tmp_path]).errors == ()
    assert check([path]).count == "1 policy, 0 mistakes"
    assert check_file(path) == []


def test_defaults_are_checked_with_the_folder_and_are_no_policies(tmp_path: Path) -> None:
    (tmp_path / "a.defaults.yaml").write_text("mode: act\n")
    (tmp_path / "b.defaults.yaml").write_text("mode: off\n")
    (tmp_path / "p.yaml").write_text("policy: p\nextends: a.defaults.yaml\n")
    checked = check([tmp_path])
    assert [e.message for e in checked.errors] == ["mode: 'off' is not one of observe, act"]
    assert checked.count == "1 policy, 2 files of defaults, 1 mistake"


def test_warnings_are_told_once_and_are_no_mistakes(tmp_path: Path) -> None:
    (tmp_path / "a.defaults.yaml").write_text("migrate: {where: ['saving.fraction > 20.0']}\n")
    for name in ("p", "q"):
        (tmp_path / f"{name}.yaml").write_text(f"policy: {name}\nextends: a.defaults.yaml\n")
    checked = check([tmp_path])
    assert [str(w.place) for w in checked.warnings] == [f"{tmp_path}/a.defaults.yaml:1:20"]
    assert checked.errors == ()
    assert checked.count == "2 policies, 1 file of defaults, 0 mistakes, 1 warning"


def test_policies_that_tie_are_told_after_all_else(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(f"policy: {name}\nmode: act\n")
    (error,) = check([tmp_path]).errors
    assert error.message.startswith(f"{tmp_path}/b.yaml: b matches the same jobs as a ({tmp_path}/a.yaml)")


def test_an_empty_folder_is_a_mistake(tmp_path: Path) -> None:
    assert [e.message for e in check([tmp_path]).errors] == [
        f"{tmp_path}: no policy files (*.yaml) in this folder"
    ]
