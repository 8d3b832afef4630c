"""`broker policy check` over files and folders."""

from pathlib import Path

from broker.policy.diagnose import as_json, as_text, check, check_file


def test_a_folder_with_mistakes(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("policy: a\nmode: off\nplace: {order: [spot, spt]}\n")
    (tmp_path / "b.yaml").write_text("policy: same\n")
    (tmp_path / "c.yaml").write_text("policy: same\n")
    errors = check([tmp_path, tmp_path / "b.yaml", tmp_path / "gone.yaml"])
    assert [e.message for e in errors] == [
        "mode: 'off' is not one of observe, act",
        "place.order[1]: 'spt' is not one of owned, spot, on_demand, reserved",
        f"{tmp_path}/c.yaml: the name same is taken by {tmp_path}/b.yaml",
        f"cannot read {tmp_path}/gone.yaml: No such file or directory",
    ]
    assert as_json(errors)[1] == {
        "code": "policy_file",
        "message": "place.order[1]: 'spt' is not one of owned, spot, on_demand, reserved",
        "file": f"{tmp_path}/a.yaml",
        "line": 3,
        "column": 23,
        "hint": "did you mean spot?",
    }
    assert as_json(errors)[2]["line"] is None
    assert as_text(errors).endswith("\n\n4 mistakes\n")


def test_text_of_one_mistake(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("policy: a\nmod: act\n")
    assert as_text(check_file(path)) == (
        f"{path}:2:1: unknown key mod\n    mod: act\n    ^\nhint: did you mean mode?\n\n1 mistake\n"
    )


def test_no_mistakes(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("policy: a\n")
    assert as_text(check([tmp_path])) == "no mistakes\n"


def test_an_empty_folder_is_a_mistake(tmp_path: Path) -> None:
    assert [e.message for e in check([tmp_path])] == [f"{tmp_path}: no policy files (*.yaml) in this folder"]
