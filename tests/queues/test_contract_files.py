"""Contracts in files: what is read, and what is said of every mistake, with its place."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixsched.errors import BadInput, InvalidContractFile, UnknownQueue
from matrixsched.queues import Contract, Field, FieldType, QueueContract, load_contract, parse_contract
from matrixsched.rules.contract import NAME_CHARACTERS_MAX, VERSION_MAX
from matrixsched.rules.queues import QUEUE_MAX
from matrixsched.store.migrations import schema_folder

SHOP = """\
version: 1
description: Messages of the shop
queues:
  - id: 1
    name: emails
    description: Mail to one customer
    fields:
      - {name: to, type: string, description: Address}
      - {name: subject, type: string}
      - {name: body, type: "[]byte", default: "aGk="}
"""


def mistakes(text: str | bytes) -> list[str]:
    """What is said, without the name of the file."""
    with pytest.raises(InvalidContractFile) as refused:
        parse_contract(text, file="x")
    return [str(mistake).removeprefix("x:") for mistake in refused.value.mistakes]


def of_fields(*fields: str) -> str:
    """A contract with these fields; the first stands at line 2."""
    return "queues: [{id: 1, name: jobs, fields: [\n" + ",\n".join(fields) + "]}]"


def test_a_contract_is_read(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(SHOP)
    contract = load_contract(file)
    assert contract == Contract(
        version=1,
        description="Messages of the shop",
        queues=(
            QueueContract(
                id=1,
                name="emails",
                description="Mail to one customer",
                fields=(
                    Field(name="to", type=FieldType.STRING, description="Address"),
                    Field(name="subject", type=FieldType.STRING),
                    Field(name="body", type=FieldType.BYTES, default=b"hi"),
                ),
            ),
        ),
    )
    assert load_contract(str(file)) == contract


def test_a_queue_is_found_by_name_and_by_id() -> None:
    contract = parse_contract(SHOP)
    assert contract.queue("emails") is contract.queue(1) is contract.queues[0]
    with pytest.raises(UnknownQueue, match=r"no queue 'email'; it has: emails\. Check the spelling"):
        contract.queue("email")
    with pytest.raises(UnknownQueue, match="no queue 2"):
        contract.queue(2)


@pytest.mark.parametrize(
    ("type", "written", "value"),
    [
        ("int", "-9223372036854775808", -(2**63)),
        ("int64", "9223372036854775807", 2**63 - 1),
        ("int", "+10", 10),
        ("int", "0", 0),
        ("string", '"ü\\0"', "ü\0"),
        ("bool", "false", False),
        ('"[]byte"', "/wA=", b"\xff\0"),
        ('"[]int"', "[]", ()),
        ('"[]int64"', "[1, -2]", (1, -2)),
    ],
)
def test_all_types_have_defaults(type: str, written: str, value: object) -> None:
    (field,) = parse_contract(of_fields(f"{{name: a, type: {type}, default: {written}}}")).queues[0].fields
    assert (field.default, field.default.__class__) == (value, value.__class__)


def test_version_and_descriptions_may_be_left_out() -> None:
    contract = parse_contract("queues: [{id: 1, name: pings, fields: []}]")
    assert (contract.version, contract.description, contract.queues[0].description) == (1, "", "")
    assert contract.queues[0].fields == ()


def test_all_mistakes_are_told_at_once_with_their_places(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        "version: 1\n"
        "queues:\n"
        "  - id: 1\n"
        "    name: emails\n"
        "    fields:\n"
        "      - {name: to, type: strng}\n"
        "      - {name: class, type: string}\n"
        '      - {name: body, type: "[]byte", default: "é"}\n'
        "      - {name: late, type: int}\n"
        "  - id: 1\n"
        "    name: orders\n"
        "    feilds: []\n"
    )
    with pytest.raises(InvalidContractFile) as refused:
        load_contract(file)
    assert str(refused.value).replace(f"{file}", "shop.yaml").splitlines() == [
        "shop.yaml:6:26: the type of field 1 is 'strng': use one of int, int64, string, bool, []byte, []int, []int64; "
        "did you mean string?",
        "shop.yaml:7:16: the name of field 2 'class' is a word of the language Python: choose another",
        "shop.yaml:8:47: the default of field 3 is not base64, as in aGVsbG8=",
        "shop.yaml:9:9: the field 'late' has no default, but one before it does: tasks that lack that one lack this "
        "one, too. Give it a default, or put it before",
        "shop.yaml:10:5: queue 2 has no fields: add it",
        "shop.yaml:10:9: the id 1 is that of the queue at line 3 already: change one",
        "shop.yaml:12:5: unknown key 'feilds': use one of id, name, description, fields; did you mean fields?",
        "Correct the file; `matrixsched contract check FILE` says what is left.",
    ]
    assert isinstance(refused.value, BadInput)
    assert refused.value.mistakes[0].line == 6


# What is no contract at all.


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "1:1: the file is empty: describe a queue, as in queues: [{id: 1"),
        ("# nothing\n---\n", "1:1: the file is empty: describe a queue"),
        ("[]", "1:1: the contract is a list: it must be a mapping"),
        ("queues: [", "1:10: this is not YAML (while parsing a flow node, expected the node content"),
        ("a: b: c", "1:5: this is not YAML (mapping values are not allowed here): check indentation"),
        ("queues:\n\t- id: 1", "2:1: this is not YAML (while scanning for the next token, found character '\\t'"),
        ("a:\n  type: []byte", '2:9: types with brackets must be in quotes: write "[]byte"'),
        ("a: [{type: [] int64, b: []}]", '1:12: types with brackets must be in quotes: write "[]int64"'),
        ("\u2028a: é\r\nb: []byte\r\n", '3:4: types with brackets must be in quotes: write "[]byte"'),
        ("a: 1\n---\nb: 2", "2:1: another document begins here: a contract is one document"),
        ("a: 1\nb: \x07", "2:4: the character U+0007 cannot be in YAML: leave it out"),
        (b"a: 1\nb: \xff", "2:4: this is not UTF-8"),
        ("a: \ud800", "1:4: this is not UTF-8"),
        ("a: &a [*a]", "1:8: aliases (*name) are not understood here: write out what is meant"),
        ("[" * 100_000, "1:21: this is nested too deeply"),
        ("#" * (256 * 1024 + 1), "1:1: the file has 262,145 bytes: use 262,144 at most"),
        ("!!python/object:os.system {}", "1:1: the tag 'tag:yaml.org,2002:python/object:os.system' is not understood"),
    ],
    ids=lambda text: repr(text[:20]),
)
def test_what_is_no_contract_is_refused(text: str | bytes, told: str) -> None:
    (said,) = mistakes(text)
    assert said.startswith(told), said


def test_a_mark_of_the_byte_order_is_no_mistake() -> None:
    assert parse_contract(b"\xef\xbb\xbf" + SHOP.encode()) == parse_contract(SHOP)


@pytest.mark.parametrize("name", ["nothing.yaml", ".", "a\0b"])
def test_a_file_that_cannot_be_read_is_said_so(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidContractFile, match=r"cannot be read \(.+\): check the path") as refused:
        load_contract(tmp_path / name)
    assert refused.value.mistakes[0].line is None


@given(
    st.integers(0, len(SHOP)), st.integers(0, 20), st.text(st.sampled_from("{}[]:,-*&!|>'\"#\n \t0aé\0"), max_size=8)
)
def test_whatever_is_done_to_a_file_only_mistakes_are_told(at: int, gone: int, added: str) -> None:
    with suppress(InvalidContractFile):
        parse_contract(SHOP[:at] + added + SHOP[at + gone :])


@given(st.binary() | st.text())
def test_whatever_a_file_holds_only_mistakes_are_told(text: str | bytes) -> None:
    with pytest.raises(InvalidContractFile):
        parse_contract(text)


# What is wrong in its parts.


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{}", ["1:1: the contract has no queues: add it"]),
        ("queues: []", ["1:9: queues is an empty list: describe one at least, as in queues: "]),
        ("queues: {}", ["1:9: queues is a mapping: it must be a list"]),
        ("queues: [1]", ["1:10: queue 1 is a number: it must be a mapping"]),
        (
            "queues: [{}]",
            ["1:10: queue 1 has no fields", "1:10: queue 1 has no id", "1:10: queue 1 has no name"],
        ),
        (
            "queues: [{id: 1, name: a, fields: []}]\nversion: 0\ndescription: 5",
            ["2:10: version is 0: it must be from 1 to 2147483647", "3:14: description is a number: it must be a text"],
        ),
        ("queues: [{id: 1.0, name: a, fields: []}]", ["1:15: the id of queue 1 is a number with a point"]),
        ("queues: [{id: true, name: a, fields: []}]", ["1:15: the id of queue 1 is true or false"]),
        (f"queues: [{{id: {QUEUE_MAX + 1}, name: a, fields: []}}]", ["1:15: the id of queue 1 is 2147483648: it must"]),
        ("queues: [{id: 010, name: a, fields: []}]", ["1:15: '010' is read as 8: write it plainly, or in quotes if"]),
        ("queues: [{id: 0x10, name: a, fields: []}]", ["1:15: '0x10' is read as 16: write it plainly"]),
        ("queues: [{id: 0b1, name: a, fields: []}]", ["1:15: '0b1' is read as 1: write it plainly"]),
        ("queues: [{id: 1_0, name: a, fields: []}]", ["1:15: '1_0' is read as 10: write it plainly"]),
        ("queues: [{id: !!int '01', name: a, fields: []}]", ["1:15: '01' is read as 1: write it plainly"]),
        (f"queues: [{{id: 0x{'f' * 9999}, name: a, fields: []}}]", ["1:15: this is not what its tag says"]),
        ("queues: [{id: !!int '', name: a, fields: []}]", ["1:15: this is not what its tag says, or too long"]),
        ("queues: [{id: 1, name: no, fields: []}]", ["1:24: the name of queue 1 is true or false: it must be a text"]),
        ("queues: [{id: 1, name: 2026-01-01, fields: []}]", ["1:24: this is read as a date: put it in quotes"]),
        ("queues: [{id: 1, name: !x a, fields: []}]", ["1:24: the tag '!x' is not understood"]),
        ("queues: [{id: 1, name: queue, fields: []}]", ["1:24: the name of queue 1 'queue' would make a class"]),
        ("queues: [{id: 1, name: a, fields: []}]\n1: 2", ["2:1: this key is no text"]),
        ("queues: [{id: 1, name: a, fields: []}]\n? [a]\n: 2", ["2:3: this key is no text"]),
        ("queues: [{id: 1, name: a, fields: []}]\nqueues: 1", ["2:1: the key 'queues' is given twice, first"]),
        ("queues: [{id: 1, name: a, fields: []}]\n<<: {}", ["2:1: unknown key '<<'"]),
        ('queues: [{id: 1, name: a, fields: []}]\ndescription: "\\a"', ["2:14: description holds the char"]),
        (
            "queues: [\n{name: a1,id: 1, fields: []},\n{name: a_1,id: 2, fields: []},\n{name: a1,id: 3, fields: []}]",
            [
                "3:8: the names 'a_1' and 'a1' would both make a class A1Task: change one",
                "4:8: the name 'a1' is that of the queue at line 2 already: change one",
            ],
        ),
    ],
)  # fmt: skip
def test_each_mistake_of_a_queue_has_its_message(text: str, told: list[str]) -> None:
    assert [said[: len(start)] for said, start in zip(mistakes(text), told, strict=True)] == told


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (["1"], ["2:1: field 1 is a number: it must be a mapping"]),
        (["{name: a}"], ["2:1: field 1 has no type: add it"]),
        (["{type: int}"], ["2:1: field 1 has no name: add it"]),
        (["{name: a, type: [int]}"], ["2:17: the type of field 1 is ['int']: use one of int, int64"]),
        (["{name: a, type: int, defualt: 1}"], ["2:22: unknown key 'defualt': use one of name, type, description"]),
        (["{name: A, type: int}"], ["2:8: the name of field 1 'A' is not in snake_case: begin with a letter"]),
        (["{name: _a, type: int}"], ["2:8: the name of field 1 '_a' is not in snake_case"]),
        (["{name: a__b, type: int}"], ["2:8: the name of field 1 'a__b' is not in snake_case"]),
        (["{name: ä, type: int}"], ["2:8: the name of field 1 'ä' is not in snake_case"]),
        (['{name: "a\\n", type: int}'], ["2:8: the name of field 1 'a\\n' is not in snake_case"]),
        ([f"{{name: {'a' * 41}, type: int}}"], [f"2:8: the name of field 1 '{'a' * 41}' has 41 characters: use 40 at"]),
        (["{name: import, type: int}"], ["2:8: the name of field 1 'import' is a word of the language Python"]),
        (["{name: bytes, type: int}"], ["2:8: the name of field 1 'bytes' is what fields are declared with in"]),
        (["{name: a, type: int}", "{name: a, type: int}"], ["3:8: the name 'a' is that of field 1 already: choose an"]),
        (["{name: a, type: int, default: }"], ["2:30: the default of field 1 is nothing: it must be a whole number ("]),
        (["{name: a, type: int, default: true}"], ["2:31: the default of field 1 is true or false: it must be a who"]),
        (["{name: a, type: int, default: 1:30}"], ["2:31: '1:30' is read as 90: write it plainly, or in quotes if"]),
        (['{name: a, type: "[]int", default: [1, 1_0]}'], ["2:39: '1_0' is read as 10: write it plainly"]),
        (["{name: a, type: int, default: 1.0}"], ["2:31: the default of field 1 is a number with a point: it must be"]),
        (["{name: a, type: int, default: 9223372036854775808}"], ["2:31: the default of field 1 is 92233720368547758"]),
        (["{name: a, type: int64, default: -9223372036854775809}"], ["2:33: the default of field 1 is -922337203685"]),
        (["{name: a, type: string, default: 5}"], ["2:34: the default of field 1 is a number: it must be a text (put"]),
        (['{name: a, type: string, default: "\\ud800"}'], ["2:34: the default of field 1 holds a lone surrogate"]),
        (["{name: a, type: bool, default: 1}"], ["2:32: the default of field 1 is a number: it must be true or false"]),
        (['{name: a, type: "[]byte", default: "a"}'], ["2:36: the default of field 1 is not base64"]),
        (['{name: a, type: "[]byte", default: [1]}'], ["2:36: the default of field 1 is a list: it must be a text"]),
        (['{name: a, type: "[]int", default: 1}'], ["2:35: the default of field 1 is a number: it must be a list"]),
        (['{name: a, type: "[]int", default: [1, a]}'], ["2:39: number 2 in the default of field 1 is a text: it mus"]),
        (['{name: a, type: int, description: "\\u2028"}'], ["2:35: the description of field 1 holds the character"]),
        (["{name: a, type: int, default: 1}", "{name: b, type: int}"], ["3:1: the field 'b' has no default, but one"]),
    ],
)  # fmt: skip
def test_each_mistake_of_a_field_has_its_message(fields: list[str], told: list[str]) -> None:
    assert [said[: len(start)] for said, start in zip(mistakes(of_fields(*fields)), told, strict=True)] == told


@pytest.mark.parametrize(
    "name", ["stored", "task_id", "attempts", "created_at", "start_at", "previous_start_at", "receipt"]
)
def test_fields_are_not_called_as_what_every_task_has(name: str) -> None:
    (said,) = mistakes(of_fields(f"{{name: {name}, type: int}}"))
    assert said == f"2:8: the name of field 1 {name!r} is what every task has already: choose another"


def test_the_schema_and_our_rules_have_the_same_limits() -> None:
    schema = json.loads(schema_folder().joinpath("queue-contract.schema.json").read_text())
    field, queue = schema["$defs"]["field"], schema["$defs"]["queue"]
    assert field["properties"]["type"]["enum"] == list(FieldType)
    assert schema["$defs"]["name"]["maxLength"] == NAME_CHARACTERS_MAX
    assert queue["properties"]["id"]["maximum"] == QUEUE_MAX
    assert schema["properties"]["version"]["maximum"] == VERSION_MAX
