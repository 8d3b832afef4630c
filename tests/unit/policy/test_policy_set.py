"""A folder of policies that is edited while the daemon runs: real files."""

import os
from pathlib import Path

import pytest

from broker.core.errors import NotFound
from broker.policy.load import PolicySet


def write(folder: Path, file: str, text: str) -> Path:
    path = folder / file
    path.write_text(text)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "a.yaml", "policy: a\nprecedence: 1\n")
    write(tmp_path, "b.yaml", "policy: b\n")
    return tmp_path


def messages(policies: PolicySet) -> list[str]:
    return [error.message for error in policies.errors]


def test_files_of_a_folder(folder: Path) -> None:
    write(folder, "a.test.yaml", "not: a policy\n")
    write(folder, "notes.txt", "nothing")
    policies = PolicySet(folder)
    assert list(policies.policies) == ["a", "b"]
    assert policies.errors == ()
    assert policies.get("a").precedence == 1
    with pytest.raises(NotFound, match="no policy named c"):
        policies.get("c")


def test_nothing_new_is_no_change_and_the_same_values(folder: Path) -> None:
    policies = PolicySet(folder)
    before = policies.get("a")
    assert not policies.reload()
    assert policies.get("a") is before


def test_an_edit_is_seen_though_the_clock_did_not_move(folder: Path) -> None:
    policies = PolicySet(folder)
    path = folder / "a.yaml"
    stamp = path.stat()
    write(folder, "a.yaml", "policy: a\nprecedence: 2\n")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert policies.reload().changed == ("a",)
    assert policies.get("a").precedence == 2


def test_a_broken_edit_keeps_the_old_policy_until_it_is_mended(folder: Path) -> None:
    policies = PolicySet(folder)
    old = policies.get("a")

    write(folder, "a.yaml", "policy: a\nprecedense: 2\n")
    changes = policies.reload()
    assert not changes
    assert [str(e).splitlines()[0] for e in changes.errors] == [
        f"{folder}/a.yaml:2:1: unknown key precedense"
    ]
    assert policies.get("a") is old
    policies.reload()
    assert messages(policies) == ["unknown key precedense"], "it is told as long as it is there"

    write(folder, "a.yaml", "policy: a\nprecedence: 3\n")
    assert policies.reload().changed == ("a",)
    assert policies.errors == ()


def test_doctor_hears_of_the_mistake_and_of_what_is_in_force(folder: Path) -> None:
    policies = PolicySet(folder)
    [well] = policies.checks()
    assert (well.ok, well.detail) == (True, "in force: a, b")
    write(folder, "a.yaml", "policy: a\nprecedense: 2\n")
    write(folder, "c.yaml", "policy: c\nmode: atc\n")
    policies.reload()
    files, first, second = policies.checks()
    assert (files.ok, files.detail) == (True, "in force: a, b; of a.yaml the version before the mistake")
    assert (first.ok, "a.yaml:2:1" in first.detail) == (False, True)
    assert (second.ok, "c.yaml:2:7" in second.detail) == (False, True)


def test_a_file_that_was_broken_from_the_start_is_no_policy(folder: Path) -> None:
    write(folder, "c.yaml", "policy: [c\n")
    policies = PolicySet(folder)
    assert list(policies.policies) == ["a", "b"]
    assert len(policies.errors) == 1
    write(folder, "c.yaml", "policy: c\n")
    assert policies.reload().added == ("c",)


def test_a_file_that_goes_takes_its_policy_along(folder: Path) -> None:
    policies = PolicySet(folder)
    (folder / "b.yaml").unlink()
    assert policies.reload().removed == ("b",)
    assert list(policies.policies) == ["a"]


def test_a_renamed_file_keeps_its_policy(folder: Path) -> None:
    policies = PolicySet(folder)
    (folder / "b.yaml").rename(folder / "z.yaml")
    assert not policies.reload()
    assert policies.get("b").file == str(folder / "z.yaml")


def test_a_renamed_policy(folder: Path) -> None:
    policies = PolicySet(folder)
    write(folder, "b.yaml", "policy: b2\n")
    changes = policies.reload()
    assert (changes.added, changes.removed) == (("b2",), ("b",))


def test_the_older_owner_of_a_name_keeps_it(folder: Path) -> None:
    policies = PolicySet(folder)
    # It sorts first, and still does not take the name away.
    write(folder, "0.yaml", "policy: b\nprecedence: 50\n")
    assert not policies.reload()
    assert messages(policies) == [f"{folder}/0.yaml: the name b is taken by {folder}/b.yaml"]
    assert policies.get("b").precedence == 0

    (folder / "b.yaml").unlink()
    assert policies.reload().changed == ("b",)
    assert policies.get("b").precedence == 50
    assert policies.errors == ()


def test_a_folder_that_is_gone_drops_nothing(folder: Path) -> None:
    policies = PolicySet(folder)
    away = folder.rename(folder.with_name("away"))
    assert not policies.reload()
    assert list(policies.policies) == ["a", "b"]
    assert messages(policies) == [f"{folder}: there is no such folder"]
    away.rename(folder)
    policies.reload()
    assert policies.errors == ()


def test_bytes_that_are_no_text(folder: Path) -> None:
    policies = PolicySet(folder)
    (folder / "a.yaml").write_bytes(b"policy: a\ndescription: \xff\n")
    policies.reload()
    assert messages(policies) == [f"cannot read {folder}/a.yaml: it is not UTF-8 text (byte 23)"]
    assert policies.get("a").precedence == 1
    (folder / "a.yaml").write_bytes(b"#" * 300_000)
    policies.reload()
    assert "it is longer than 65536 bytes" in messages(policies)[0]


TIED = "mode: act\nmatch: {team: [nlp, vision], labels: {tier: gold}}\nprecedence: 7\n"
SAME = "mode: act\nmatch: {labels: {tier: gold}, team: [vision, nlp]}\nprecedence: 7\n"


def test_a_newcomer_that_ties_with_a_policy_in_force_is_a_mistake(folder: Path) -> None:
    write(folder, "b.yaml", "policy: b\n" + TIED)
    policies = PolicySet(folder)
    # Both sort first, and still do not take the jobs away.
    write(folder, "0.yaml", "policy: new\n" + SAME)
    write(folder, "a.yaml", "policy: a\n" + SAME)
    told = [
        f"{folder}/{file}: {name} matches the same jobs as b ({folder}/b.yaml) with the same precedence 7, and both act"
        for file, name in (("0.yaml", "new"), ("a.yaml", "a"))
    ]
    for _ in range(2):
        assert not policies.reload()
        assert messages(policies) == told
        assert list(policies.policies) == ["a", "b"]
        assert policies.get("a").precedence == 1, "the version before stays"

    write(folder, "a.yaml", "policy: a\nprecedence: 2\n")
    (folder / "b.yaml").unlink()
    assert policies.reload().removed == ("b",)
    assert list(policies.policies) == ["new", "a"]
    assert policies.errors == ()


def test_policies_that_tie_at_a_start_are_all_in_force_and_told(folder: Path) -> None:
    write(folder, "a.yaml", "policy: a\n" + TIED)
    write(folder, "b.yaml", "policy: b\n" + SAME)
    policies = PolicySet(folder)
    for _ in range(2):
        assert list(policies.policies) == ["a", "b"], "neither is known to have come first"
        (mistake,) = policies.errors
        assert mistake.message.startswith(f"{folder}/b.yaml: b matches the same jobs as a ")
        assert mistake.hint is not None
        assert not policies.reload()
    write(folder, "b.yaml", "policy: b\n" + SAME.replace("7", "8"))
    assert policies.reload().changed == ("b",)
    assert policies.errors == ()


@pytest.mark.parametrize(
    "other",
    [
        TIED.replace("act", "observe"),
        TIED.replace("7", "8"),
        TIED.replace("gold", "silver"),
        "mode: act\nprecedence: 7\n",
    ],
)
def test_what_is_no_tie_of_files(folder: Path, other: str) -> None:
    write(folder, "a.yaml", "policy: a\n" + TIED)
    write(folder, "b.yaml", "policy: b\n" + other)
    assert PolicySet(folder).errors == ()
