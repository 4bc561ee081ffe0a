"""`matrixsched schedule`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Annotated, Any

import typer

from matrixsched.app import App
from matrixsched.calls import Call, Exists, Scheduled
from matrixsched.errors import ActionExists, WrongUse
from matrixsched.ops import changes
from matrixsched.ops.actions import payload_for
from matrixsched.ops.commands.repeating import (
    CronOption,
    EveryOption,
    ExcludeOption,
    JitterOption,
    MisfireOption,
    RepeatedOption,
    SkippedOption,
    ZoneOption,
    read_repeat,
)
from matrixsched.ops.commands.toolkit import (
    AsJson,
    Given,
    by_command,
    end_unconfirmed,
    is_confirmed,
    run,
    taking,
    text_option,
)
from matrixsched.ops.reading import read_duration, read_payload, read_time
from matrixsched.ops.render import Facts, as_argument, say, show_facts
from matrixsched.ops.settings import OF_THE_DATABASE


def register(cli: typer.Typer) -> None:
    cli.command()(schedule)


@taking(*OF_THE_DATABASE)
def schedule(
    given: Given,
    handler: Annotated[str, typer.Argument(metavar="HANDLER", help="The name of the handler that shall run.")],
    payload: Annotated[
        str | None, text_option("JSON", "What the handler gets: JSON, - for stdin, @FILE for a file; default: nothing.")
    ] = None,
    payload_version: Annotated[
        int | None, typer.Option(help="The payload's version, if its handler takes more than 1.", show_default=False)
    ] = None,
    id: Annotated[str | None, text_option("ID", "The action's id; default: one is made.", "--id")] = None,
    at: Annotated[str | None, text_option("TIME", "When it is due, as in 2026-03-29T09:00:00Z; default: now.")] = None,
    delay: Annotated[str | None, text_option("DURATION", "How long from now it is due, as in 5m.")] = None,
    every: EveryOption = None,
    cron: CronOption = None,
    zone: ZoneOption = None,
    skipped: SkippedOption = None,
    repeated: RepeatedOption = None,
    misfire: MisfireOption = None,
    jitter: JitterOption = None,
    exclude: ExcludeOption = None,
    expires_at: Annotated[str | None, text_option("TIME", "When the action ends, run or not.")] = None,
    start_within: Annotated[
        str | None, text_option("DURATION", "How late it may start; later it counts as missed.")
    ] = None,
    priority: Annotated[int, typer.Option(help="0 comes first.")] = 0,
    template: Annotated[
        str | None, text_option("NAME", "The template whose message it is; --zone is then the recipient's.")
    ] = None,
    limit: Annotated[
        str | None, text_option("KEY", "A key of your choice: actions of one key stay below its limit together.")
    ] = None,
    exists: Annotated[
        Exists | None,
        text_option(
            "WORD", "If there is an action of that id: replace, keep or error; default: replace it with --yes."
        ),
    ] = None,
    request_id: Annotated[
        str | None, text_option("TEXT", "A name for this request: however often it is sent, it is done once.")
    ] = None,
    target: Annotated[
        str | None,
        text_option("MODULE:APP", "The App of the handler: the payload is checked, its database taken.", "--app"),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Replace an action that exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write an action: now, at a time or after a delay, once or repeatedly."""
    app = _app(given, target)
    is_repeated = every is not None or cron is not None
    asked: dict[str, Any] = {
        "payload": _payload(app, handler, payload, is_checked=target is not None),
        "id": id,
        "at": None if at is None else read_time("--at", at),
        "delay": _duration("--delay", delay),
        "repeat": read_repeat(
            every, cron, zone if is_repeated or template is None else None, skipped, repeated, misfire, jitter, exclude
        ),
        "start_within": _duration("--start-within", start_within),
        "expires_at": None if expires_at is None else read_time("--expires-at", expires_at),
        "priority": priority,
        "template": template,
        "zone": None if template is None else zone,
        "limit": limit,
        "payload_version": payload_version,
        "request_id": request_id,
    }
    try:
        scheduled = run(_writing(app, handler, asked | {"exists": exists or "error"}))
    except ActionExists as error:
        if exists is not None:
            raise
        if not is_confirmed(f"action {error.action_id!r} exists and will be replaced.", yes=yes):
            there = Scheduled(error.action_id, error.guid, created=False, changed=False, running=False)
            show_facts(_facts(there), as_json=as_json)
            raise end_unconfirmed(given) from None
        # A request with a name may be what wrote it, and is then not carried out again; any other replaces what it saw.
        seen = {"id": error.action_id, "expected_guid": error.guid} if request_id is None else {}
        scheduled = run(_writing(app, handler, asked | seen))
    show_facts(_facts(scheduled), as_json=as_json)
    say(_said(scheduled, given.options() if target is None else None))


def _app(given: Given, target: str | None) -> App:
    if target is None:
        return given.app()
    if given.flags:
        raise WrongUse("--app brings its own database and installation: leave out --database and --installation")
    return given.load_app(target)


def _duration(option: str, text: str | None) -> timedelta | None:
    return None if text is None else read_duration(option, text)


def _payload(app: App, handler: str, text: str | None, *, is_checked: bool) -> object:
    plain = read_payload(text)
    if not is_checked:
        return plain
    return payload_for(app.handlers.named(handler), plain)


def _writing(app: App, handler: str, asked: Mapping[str, Any]) -> Callable[[], Awaitable[Scheduled]]:
    options = dict(asked)
    exists, expected_guid = options.pop("exists", "replace"), options.pop("expected_guid", None)

    async def write() -> Scheduled:
        async with app:
            call = Call(handler, **options)
            return await changes.schedule(by_command(app), call, exists=exists, expected_guid=expected_guid)

    return write


def _facts(scheduled: Scheduled) -> Facts:
    return {
        "id": scheduled.id,
        "guid": str(scheduled.guid),
        "created": scheduled.created,
        "changed": scheduled.changed,
        "running": scheduled.running,
    }


def _said(scheduled: Scheduled, options: str | None) -> str:
    """For people; without `options` no command is known that reaches the same database."""
    command = f"`matrixsched actions show{options or ''} {as_argument(scheduled.id)}`"
    see = f"See {command}" + (", with the App's --database." if options is None else ".")
    if not scheduled.changed:
        return f"nothing was written: the action stands as it was. {see}"
    running = "; the attempt under way ends first" if scheduled.running else ""
    return f"{'created' if scheduled.created else 'replaced'}{running}. {see}"
