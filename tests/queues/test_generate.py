"""The generated module: what it does, and that every tool is content with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from support.contracts import contracts

from matrixsched.queues import Contract, decode, encode, load_contract, task_class
from matrixsched.queues.generate import MARK, generate, literal

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden"
LINE_LENGTHS = (88, 100, 120)


def module_of(text: str) -> ModuleType:
    module = ModuleType("generated")
    sys.modules[module.__name__] = module  # dataclasses look it up
    try:
        exec(compile(text, "generated.py", "exec"), vars(module))
    finally:
        del sys.modules[module.__name__]
    return module


def tool(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, cwd=ROOT)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def unformatted(file: Path) -> str:
    lengths = [["--line-length", str(length)] for length in LINE_LENGTHS]
    return "".join(tool("ruff", "format", "--isolated", "--no-cache", "--diff", *one, str(file)) for one in lengths)


@pytest.fixture
def shop() -> Contract:
    return load_contract(GOLDEN / "shop.yaml")


def test_the_module_is_as_it_was(shop: Contract) -> None:
    """After a change that is meant: matrixsched contract generate --output …/golden/shop.py …/golden/shop.yaml"""
    text = generate(shop)
    assert text == (GOLDEN / "shop.py").read_text()
    assert text == generate(load_contract(GOLDEN / "shop.yaml"))
    assert text.startswith(MARK)


def test_the_module_knows_its_contract(shop: Contract) -> None:
    module = module_of(generate(shop))
    assert shop == module.CONTRACT
    assert module.EmailsTask.__contract__ is module.CONTRACT.queue("emails")
    assert module.EmailsTask.__doc__ == "Mail to one customer"


def test_generated_classes_and_those_of_run_time_write_and_read_alike(shop: Contract) -> None:
    module = module_of(generate(shop))
    task = module.EmailsTask(to="a", subject="b")
    data = module.serialize_emails(task)
    back = decode(shop.queue("emails"), data)
    assert encode(back) == data == encode(task)
    assert module.deserialize_emails(data) == task == decode(module.EmailsTask, data)
    recount = module.RecountsOfEverythingInOneWarehouseTask(warehouse=1, shelves=[2, 3])
    assert recount.shelves == (2, 3)
    kind = task_class(shop.queue(7))
    assert module.serialize_recounts_of_everything_in_one_warehouse(recount) == encode(
        kind(warehouse=1, shelves=(2, 3))  # type: ignore[call-arg]
    )
    assert module.serialize_pings(module.PingsTask()) == b"\x90"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_formatter_linter_and_types_are_content(shop: Contract, tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(generate(shop))
    assert unformatted(file) == ""
    assert tool("ruff", "check", "--no-cache", "--config", str(ROOT / "pyproject.toml"), str(file)) == ""
    use = tmp_path / "use.py"
    use.write_text(USE)
    # With our own settings, so that what the checks of the whole repository have cached is of use here.
    assert tool("mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(file), str(use)) == ""


USE = """
from collections.abc import Sequence

from shop import (
    EmailsHandler,
    EmailsHandlerSync,
    EmailsTask,
    PingsTask,
    deserialize_emails,
    serialize_emails,
)

from matrixsched import App
from matrixsched.queues import (
    BatchResult,
    DeadLetter,
    Done,
    HandlerStats,
    ItemResult,
    QueueStorage,
    QueueTask,
    SyncQueueStorage,
)


class Mailer:
    async def handle_emails(self, tasks: Sequence[EmailsTask], storage: QueueStorage) -> BatchResult:
        await storage.done(tasks)
        return None


class PlainMailer:
    def handle_emails(self, tasks: Sequence[EmailsTask], storage: SyncQueueStorage) -> BatchResult:
        storage.done(tasks)
        return None


class OfOtherTasks:
    async def handle_emails(self, tasks: Sequence[PingsTask], storage: QueueStorage) -> BatchResult:
        return None


class WithoutStorage:
    def handle_emails(self, tasks: Sequence[EmailsTask]) -> BatchResult:
        return None


class OfOneTask:
    def handle_emails(self, tasks: EmailsTask, storage: SyncQueueStorage) -> BatchResult:
        return None


class ReturningText:
    def handle_emails(self, tasks: Sequence[EmailsTask], storage: SyncQueueStorage) -> str:
        return "done"


handler: EmailsHandler = Mailer()
plain: EmailsHandlerSync = PlainMailer()
app = App("sqlite:///shop.db")
app.queues.handler(EmailsTask)(handler.handle_emails)
app.queues.handler(EmailsTask)(plain.handle_emails)
# mypy says so where an error that is expected does not come.
wrong_kind: EmailsHandler = PlainMailer()  # type: ignore[assignment]
wrong_plain_kind: EmailsHandlerSync = Mailer()  # type: ignore[assignment]
wrong_tasks: EmailsHandler = OfOtherTasks()  # type: ignore[assignment]
wrong_count: EmailsHandlerSync = WithoutStorage()  # type: ignore[assignment]
wrong_batch: EmailsHandlerSync = OfOneTask()  # type: ignore[assignment]
wrong_result: EmailsHandlerSync = ReturningText()  # type: ignore[assignment]
app.queues.handler(EmailsTask)(WithoutStorage().handle_emails)
app.queues.handler(EmailsTask)(ReturningText().handle_emails)  # type: ignore[type-var, arg-type]
app.queues.handler(EmailsTask)(OfOtherTasks().handle_emails)  # type: ignore[arg-type]
app.queues.handler(EmailsTask)(OfOneTask().handle_emails)  # type: ignore[arg-type]
app.queues.handler("emails")(ReturningText().handle_emails)  # type: ignore[type-var]


@app.queues.handler(EmailsTask, batch_size=5)
async def listed(tasks: list[EmailsTask]) -> list[ItemResult]:
    return [Done() for task in tasks]


@app.queues.handler(EmailsTask)
def settling(tasks: Sequence[EmailsTask], storage: SyncQueueStorage) -> HandlerStats:
    return HandlerStats(processed=len(storage.done(tasks).settled))


@app.queues.handler(EmailsTask)
async def of_every_queue(tasks: Sequence[QueueTask], storage: QueueStorage | None = None) -> None: ...


@app.queues.handler(EmailsTask)  # type: ignore[arg-type]
async def of_the_wrong_storage(tasks: Sequence[EmailsTask], storage: SyncQueueStorage) -> None: ...


@app.queues.handler(EmailsTask)  # type: ignore[arg-type]
def of_the_wrong_tasks(tasks: list[PingsTask]) -> None: ...


@app.queues.handler("emails")
def by_name(tasks: Sequence[QueueTask]) -> list[DeadLetter]:
    return [DeadLetter("no") for task in tasks]


async def call_them(tasks: list[EmailsTask]) -> list[ItemResult]:
    by_name(tasks=tasks)
    return await listed(tasks)


text: str = deserialize_emails(serialize_emails(EmailsTask(to="a", subject="b"))).subject
"""


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contract=contracts)
def test_whatever_the_texts_are_the_module_is_formatted_and_true(contract: Contract, tmp_path: Path) -> None:
    text = generate(contract)
    assert contract == module_of(text).CONTRACT
    file = tmp_path / "generated.py"
    file.write_text(text)
    assert unformatted(file) == ""


TEXTS = [
    "Plain",
    'It\'s "quoted"',
    '"',
    '"start',
    'three """ quotes',
    '""""""',
    "'''",
    "back\\slash\\",
    '\\"',
    '\\"""\\',
    "lines\n  indented\n\n\nagain  \n",
    "ünï 漢字 \u200b\xa0",
    *("x" * length for length in (64, 65, 66, 67, 68, 69, 70, 75, 76, 77, 78, 79, 100, 110, 200)),
    "漢" * 40,
    "word " * 40,
    "\t tab",
    "{braces} %s #",
    "   ",
]


@pytest.mark.slow
def test_difficult_descriptions_and_defaults(tmp_path: Path) -> None:
    queues = "".join(
        f"- {{id: {place + 1}, name: q{place}, description: {quoted}, "
        f"fields: [{{name: a, type: string, default: {quoted}, description: {quoted}}}]}}\n"
        for place, quoted in enumerate(map(_yaml, TEXTS))
    )
    source = tmp_path / "contract.yaml"
    source.write_text(f"queues:\n{queues}")
    contract = load_contract(source)
    text = generate(contract)
    module = module_of(text)
    assert contract == module.CONTRACT
    assert [getattr(module, f"Q{place}Task")().a for place in range(len(TEXTS))] == TEXTS
    file = tmp_path / "generated.py"
    file.write_text(text)
    assert unformatted(file) == ""


def _yaml(text: str) -> str:
    inner = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{inner}"'


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("a", '"a"'),
        ('say "a"', "'say \"a\"'"),
        ("it's \"a\" ' ", '"it\'s \\"a\\" \' "'),
        ("\\\n\x00é\u2028", '"\\\\\\n\\x00é\\u2028"'),
        (b"\"\xff'", 'b"\\"\\xff\'"'),
        (True, "True"),
        ((1,), "(1,)"),
        ((), "()"),
    ],
)
def test_values_are_written_as_a_formatter_would(value: str, written: str) -> None:
    assert literal(value) == written
    assert eval(written) == value
