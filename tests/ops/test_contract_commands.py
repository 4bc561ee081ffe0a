"""`matrixsched contract`, as it is typed: no database is needed."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import Matrixsched

from matrixsched.queues import load_contract
from matrixsched.queues.generate import generate

SHOP = """\
version: 1
queues:
  - id: 1
    name: emails
    fields:
      - {name: to, type: string}
"""
WITH_BODY = SHOP + '      - {name: body, type: "[]byte", default: ""}\n'
WRONG = SHOP + "      - {name: class, type: strng}\n"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return written(tmp_path / "shop.yaml", SHOP)


def written(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def suggested(said: str) -> list[str]:
    return shlex.split(said.split("`")[-2])[1:]


# check


def test_a_good_contract_passes_and_the_next_move_works(
    matrixsched: Matrixsched, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = matrixsched("contract", "check", str(shop))
    assert (passed.code, passed.out) == (0, "")
    assert passed.err.startswith("no mistakes: 1 queue. Make a module of it: ")
    assert matrixsched("contract", "check", str(shop), "--json").json == []
    monkeypatch.chdir(shop.parent)
    assert matrixsched(*suggested(passed.err)).code == 0
    assert (shop.parent / "FILE.py").exists()


def test_all_mistakes_of_a_contract_are_listed(matrixsched: Matrixsched, shop: Path) -> None:
    written(shop, WRONG)
    refused = matrixsched("contract", "check", str(shop))
    assert refused.code == 2
    assert refused.out.splitlines() == [
        f"{shop}:7:16: the name of field 2 'class' is a word of the language Python: choose another",
        f"{shop}:7:29: the type of field 2 is 'strng': use one of int, int64, string, bool, []byte, []int, []int64; "
        "did you mean string?",
    ]
    assert refused.err == "2 mistakes: each line says what to change; then check again.\n"
    as_json = matrixsched("contract", "check", str(shop), "--json")
    assert as_json.code == 2
    assert [(row["file"], row["line"], row["column"]) for row in as_json.json] == [
        (str(shop), 7, 16),
        (str(shop), 7, 29),
    ]
    assert as_json.json[0]["mistake"].startswith("the name of field 2 'class'")


def test_a_file_that_is_not_there_is_said_so(matrixsched: Matrixsched, tmp_path: Path) -> None:
    missing = matrixsched("contract", "check", str(tmp_path / "nothing.yaml"))
    assert missing.code == 2
    assert "nothing.yaml: cannot be read (No such file or directory): check the path" in missing.out


# generate


def test_a_module_is_shown_or_written(matrixsched: Matrixsched, shop: Path, tmp_path: Path) -> None:
    text = generate(load_contract(shop))
    assert matrixsched("contract", "generate", str(shop)).out == text
    assert matrixsched("contract", "generate", str(shop), "--json").json == {"module": text}
    output = tmp_path / "tasks.py"
    first = matrixsched("contract", "generate", str(shop), "--output", str(output), "--json")
    assert (first.code, first.json) == (0, {"output": str(output), "queues": 1, "was": "missing", "written": True})
    assert output.read_text() == text
    again = matrixsched("contract", "generate", str(shop), "--output", str(output), "--json")
    assert (again.code, again.json["was"], again.json["written"]) == (0, "same", False)
    assert again.err == "up to date: nothing was written.\n"
    written(shop, WITH_BODY)
    changed = matrixsched("contract", "generate", str(shop), "--output", str(output), "--json")
    assert (changed.code, changed.json["was"], changed.json["written"]) == (0, "different", True)
    assert "body: bytes" in output.read_text()


def test_check_says_whether_a_module_is_up_to_date(matrixsched: Matrixsched, shop: Path, tmp_path: Path) -> None:
    output = tmp_path / "tasks.py"
    command = ["contract", "generate", "--output", str(output), str(shop), "--check"]
    missing = matrixsched(*command)
    assert (missing.code, output.exists()) == (1, False)
    assert "tasks.py is not there. Generate it: " in missing.err
    assert matrixsched(*suggested(missing.err)).code == 0
    assert matrixsched(*command).code == 0
    before = output.read_text()
    written(shop, WITH_BODY)
    stale = matrixsched(*command, "--json")
    assert (stale.code, stale.json["was"], stale.json["written"]) == (1, "different", False)
    assert "is not as it would be generated" in stale.err
    assert output.read_text() == before
    assert "name it, as in --output tasks.py" in matrixsched("contract", "generate", str(shop), "--check").err


def test_a_file_that_was_not_generated_is_not_overwritten(matrixsched: Matrixsched, shop: Path, tmp_path: Path) -> None:
    mine = written(tmp_path / "mine.py", "print('mine')\n")
    refused = matrixsched("contract", "generate", str(shop), "--output", str(mine))
    assert refused.code == 2
    assert "was not generated, so it is not overwritten" in refused.err
    assert mine.read_text() == "print('mine')\n"
    checked = matrixsched("contract", "generate", str(shop), "--output", str(mine), "--check")
    assert checked.code == 1
    assert "mine.py was not generated, so it is not overwritten: name another file, or remove it." in checked.err


def test_where_nothing_can_be_written_it_is_said(matrixsched: Matrixsched, shop: Path, tmp_path: Path) -> None:
    nowhere = matrixsched("contract", "generate", str(shop), "--output", str(tmp_path / "no" / "tasks.py"))
    assert nowhere.code == 2
    assert "cannot be written (No such file or directory): see to it, or name another file" in nowhere.err
    folder = matrixsched("contract", "generate", str(shop), "--output", str(tmp_path))
    assert folder.code == 2
    assert "cannot be read (Is a directory): name another file" in folder.err


def test_of_a_wrong_contract_nothing_is_made(matrixsched: Matrixsched, shop: Path, tmp_path: Path) -> None:
    written(shop, WRONG)
    output = tmp_path / "tasks.py"
    refused = matrixsched("contract", "generate", str(shop), "--output", str(output))
    assert (refused.code, refused.out, output.exists()) == (2, "", False)
    assert f"{shop}:7:16: the name of field 2 'class'" in refused.err
    assert f"2 mistakes in {shop}, so nothing was done" in refused.err


# diff


def test_compatible_changes_pass(matrixsched: Matrixsched, shop: Path, tmp_path: Path) -> None:
    new = written(tmp_path / "new.yaml", WITH_BODY)
    passed = matrixsched("contract", "diff", str(shop), str(new), "--json")
    assert passed.code == 0
    (row,) = passed.json
    assert list(row) == ["queue", "field", "compatible", "change", "why"]
    assert (row["queue"], row["field"], row["compatible"]) == ("emails", "body", True)
    assert passed.err.startswith("compatible: deploy workers first")
    same = matrixsched("contract", "diff", str(shop), str(shop))
    assert (same.code, same.out, same.err) == (0, "", "nothing has changed.\n")


def test_incompatible_changes_are_refused_with_the_reason(matrixsched: Matrixsched, shop: Path, tmp_path: Path) -> None:
    old = written(tmp_path / "old.yaml", WITH_BODY)
    refused = matrixsched("contract", "diff", str(old), str(shop))
    assert refused.code == 1
    assert "the field is removed" in refused.out
    assert "Keep it and ignore it, or make a new queue." in refused.out
    assert refused.err == "1 of 1 changes is not compatible: do as each of them says.\n"
    assert matrixsched("contract", "diff", str(old), str(written(tmp_path / "wrong.yaml", WRONG))).code == 2


# Without the extra.


@pytest.mark.parametrize("library", ["yaml", "jsonschema"])
def test_without_the_extra_it_is_said_what_to_install(shop: Path, library: str) -> None:
    program = f"import sys; sys.modules[{library!r}] = None; from matrixsched.ops.cli import main; main()"
    command = [sys.executable, "-c", program, "contract", "check", str(shop)]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2
    assert refused.stderr == (
        f"matrixsched: typed queues need libraries that are not installed ({library}). "
        "Install them: pip install 'matrixsched[queues]'.\n"
    )


def test_without_the_extra_all_else_works_and_tasks_say_what_to_install() -> None:
    program = (
        "import sys\n"
        "for library in ('yaml', 'jsonschema', 'msgspec'): sys.modules[library] = None\n"
        "import matrixsched.worker, matrixsched.ops.cli\n"
        "from matrixsched.queues import Field, FieldType, QueueContract, encode, task_class\n"
        "from matrixsched.errors import ExtraMissing\n"
        "kind = task_class(QueueContract(id=1, name='pings', fields=()))\n"
        "try:\n"
        "    encode(kind())\n"
        "except ExtraMissing as error:\n"
        "    sys.stdout.write(str(error))\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told.endswith("(msgspec). Install them: pip install 'matrixsched[queues]'.")
