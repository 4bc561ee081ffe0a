"""FastAPI: an endpoint writes an order and schedules its confirmation in one transaction.

uvicorn fastapi_app:api              # in examples/; the worker runs inside, which is enough for development
python examples/fastapi_app.py       # calls the endpoints itself and prints what they answer

In production, leave the Worker out of the lifespan (`async with actions:` is enough) and run as many as you need beside
it: matrixsched worker fastapi_app:actions
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from matrixsched import App
from matrixsched.events import AttemptEnded
from matrixsched.worker import Worker

DATABASE = os.environ.get("MATRIXSCHED_DATABASE", "sqlite:///fastapi_app.db")
actions = App(DATABASE)
engine = create_async_engine(
    DATABASE.replace("postgresql://", "postgresql+asyncpg://").replace("sqlite://", "sqlite+aiosqlite://")
)
sessions = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    confirmed: Mapped[bool] = mapped_column(default=False)


class NewOrder(BaseModel):
    item: str


class Confirmation(BaseModel):
    order_id: int


@actions.action("confirm")
async def confirm(confirmation: Confirmation) -> None:
    async with sessions.begin() as session:
        order = await session.get_one(Order, confirmation.order_id)
        order.confirmed = True


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    await actions.init()
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with Worker(actions):  # opens the app, too; when the server stops, handlers under way may finish
        yield
    await engine.dispose()


api = FastAPI(lifespan=lifespan)


@api.post("/orders", status_code=201)
async def place(new: NewOrder) -> dict[str, int]:
    async with sessions.begin() as session:
        order = Order(item=new.item)
        session.add(order)
        await session.flush()
        await actions.schedule(confirm, Confirmation(order_id=order.id), id=f"confirm:{order.id}", connection=session)
        if new.item == "unicorn":
            raise HTTPException(409, "out of stock")  # the order and its action are rolled back
    return {"id": order.id}


@api.get("/orders/{order_id}")
async def show(order_id: int) -> dict[str, object]:
    async with sessions() as session:
        order = await session.get(Order, order_id)
    if order is None:
        raise HTTPException(404, "no such order")
    return {"item": order.item, "confirmed": order.confirmed}


async def main() -> None:
    """A visit to the shop, without a network."""
    ended = anyio.Event()
    actions.events.subscribe(AttemptEnded, lambda _: ended.set())
    transport = httpx.ASGITransport(app=api)
    async with lifespan(api), httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        placed = await client.post("/orders", json={"item": "tea"})
        print(placed.status_code, placed.json())
        await ended.wait()
        print((await client.get(f"/orders/{placed.json()['id']}")).json())
        refused = await client.post("/orders", json={"item": "unicorn"})
        print(refused.status_code, refused.json())
        print([action.id for action in await actions.list()])


if __name__ == "__main__":
    anyio.run(main)
