"""Scheduling in an asynchronous SQLAlchemy session, also many at once, and changing what is scheduled.

python examples/sqlalchemy_async.py
"""

import os
from datetime import timedelta

import anyio
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from matrixsched import App, call
from matrixsched.worker import Worker

DATABASE = os.environ.get("MATRIXSCHED_DATABASE", "sqlite:///sqlalchemy_async.db")
app = App(DATABASE)
engine = create_async_engine(
    DATABASE.replace("postgresql://", "postgresql+asyncpg://").replace("sqlite://", "sqlite+aiosqlite://")
)


class Base(DeclarativeBase): ...


class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


class Mail(BaseModel):
    user_id: int
    subject: str


@app.action("mail")
async def mail(mail: Mail) -> None:
    async with AsyncSession(engine) as session:
        user = await session.get_one(User, mail.user_id)
    print(f"to {user.name}: {mail.subject}")


async def sign_up(name: str) -> None:
    """A user, a welcome at once and a question a week later: all of it or nothing."""
    async with AsyncSession(engine) as session, session.begin():
        user = User(name=name)
        session.add(user)
        await session.flush()
        mails = [
            call(mail, Mail(user_id=user.id, subject="welcome"), id=f"welcome:{user.id}"),
            call(mail, Mail(user_id=user.id, subject="how is it?"), id=f"ask:{user.id}", delay=timedelta(days=7)),
        ]
        many = await app.schedule_many(mails, connection=session)
        print(f"{name} signed up, {many.created} mails are scheduled")


async def leave(user_id: int) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await session.delete(await session.get_one(User, user_id))
        await app.cancel(f"ask:{user_id}", connection=session)
        print(f"user {user_id} left, nothing more is asked")


async def main() -> None:
    await app.init()
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with app:
        await sign_up("Ada")
        await Worker(app).run_due()  # what `matrixsched worker sqlalchemy_async:app` would do now
        await leave(1)
        for action in await app.list():
            print(f"{action.id} is {action.status.state}")
    await engine.dispose()


if __name__ == "__main__":
    anyio.run(main)
