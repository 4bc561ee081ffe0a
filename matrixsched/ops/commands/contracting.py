"""`matrixsched contract`: needs no database."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from matrixsched.errors import InvalidContractFile, WrongUse
from matrixsched.ops.commands.toolkit import AsJson, text_option
from matrixsched.ops.contracts import ModuleState, change_facts, counted, mistake_facts, module_state, write_module
from matrixsched.ops.exits import DONE, FAILED, WRONG_USE
from matrixsched.ops.render import as_argument, say, show_facts, show_rows, visible
from matrixsched.queues.compare import compare
from matrixsched.queues.contracts import load_contract
from matrixsched.queues.generate import generate

commands = typer.Typer(
    help="Check a contract of typed queues, make a Python module of it, and compare two.", no_args_is_help=True
)


def register(cli: typer.Typer) -> None:
    cli.add_typer(commands, name="contract")


File = Annotated[str, typer.Argument(metavar="FILE", help="The contract, in YAML.")]


@commands.command("check")
def check_contract(file: File, as_json: AsJson = False) -> None:
    """Find all mistakes of a contract at once, each with its line and column."""
    try:
        contract = load_contract(file)
    except InvalidContractFile as error:
        if as_json:
            show_rows([mistake_facts(mistake) for mistake in error.mistakes], as_json=True)
        else:
            for mistake in error.mistakes:
                sys.stdout.write(f"{visible(str(mistake))}\n")
        say(f"{counted(error.mistakes)}: each line says what to change; then check again.")
        raise typer.Exit(WRONG_USE) from None
    show_rows([], as_json=as_json)
    count = len(contract.queues)
    say(
        f"no mistakes: {count} {'queue' if count == 1 else 'queues'}. Make a module of it: "
        f"`matrixsched contract generate --output FILE.py {as_argument(file)}`."
    )


@commands.command("generate")
def generate_module(
    file: File,
    output: Annotated[str | None, text_option("FILE", "Where to write the module; otherwise it is shown.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only see whether the module is as it would be generated; 1 if it is not.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make one Python module of a contract: typed tasks, how they are written and read, and their handlers."""
    if check and output is None:
        raise WrongUse("--check compares a module on disk: name it, as in --output tasks.py")
    contract = load_contract(file)
    text = generate(contract)
    if output is None:
        _show_module(text, as_json=as_json)
        return
    state = module_state(Path(output), text)
    again = f"`matrixsched contract generate --output {as_argument(output)} {as_argument(file)}`"
    if state is ModuleState.FOREIGN and not check:
        raise WrongUse(f"{output} {_FOREIGN}")
    is_written = state is not ModuleState.SAME and not check
    if is_written:
        write_module(Path(output), text)
    facts = {"output": output, "queues": len(contract.queues), "was": state, "written": is_written}
    show_facts(facts, as_json=as_json)
    if state is ModuleState.SAME:
        say("up to date: nothing was written.")
    elif state is ModuleState.FOREIGN:
        say(f"{output} {_FOREIGN}.")
    elif check:
        say(f"{output} is {_STATES[state]}. Generate it: {again}.")
    else:
        say("written. Import its classes; to see later whether it is up to date, add --check.")
    raise typer.Exit(FAILED if check and state is not ModuleState.SAME else DONE)


_STATES = {ModuleState.DIFFERENT: "not as it would be generated", ModuleState.MISSING: "not there"}
_FOREIGN = "was not generated, so it is not overwritten: name another file, or remove it"


def _show_module(text: str, *, as_json: bool) -> None:
    if as_json:
        show_facts({"module": text}, as_json=True)
    else:
        sys.stdout.write(text)
    say("to keep it, name a file: --output tasks.py.")


@commands.command("diff")
def diff_contracts(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The contract by which tasks were put.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The contract by which they shall be read.")],
    as_json: AsJson = False,
) -> None:
    """See what has changed, and whether tasks of the old contract can be read by the new one; 1 if they cannot."""
    changes = compare(load_contract(old), load_contract(new))
    show_rows([change_facts(change) for change in changes], as_json=as_json)
    refused = sum(not change.is_compatible for change in changes)
    if refused:
        say(
            f"{refused} of {len(changes)} changes {'is' if refused == 1 else 'are'} not compatible: "
            "do as each of them says."
        )
        raise typer.Exit(FAILED)
    say("compatible: deploy workers first, then whoever puts tasks." if changes else "nothing has changed.")
