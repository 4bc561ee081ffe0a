"""Scheduling in a synchronous SQLAlchemy session: order and action are committed, or rolled back, together.

python examples/sqlalchemy_sync.py
"""

import os

import anyio
from pydantic import BaseModel
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from matrixsched import App
from matrixsched.errors import ActionNotFound
from matrixsched.worker import Worker

DATABASE = os.environ.get("MATRIXSCHED_DATABASE", "sqlite:///sqlalchemy_sync.db")
app = App(DATABASE)
engine = create_engine(DATABASE.replace("postgresql://", "postgresql+psycopg://"))


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    confirmed: Mapped[bool] = mapped_column(default=False)


class Confirmation(BaseModel):
    order_id: int


class OutOfStock(Exception): ...


@app.action("confirm")
def confirm(confirmation: Confirmation) -> None:
    """A plain function runs in a thread. It may run twice, and then does no harm."""
    with Session(engine) as session, session.begin():
        order = session.get_one(Order, confirmation.order_id)
        order.confirmed = True
        print(f"order {order.id}: confirmed, one {order.item}")


def place(item: str) -> int:
    with Session(engine) as session, session.begin():
        order = Order(item=item)
        session.add(order)
        session.flush()
        order_id = order.id
        app.sync.schedule(confirm, Confirmation(order_id=order.id), id=f"confirm:{order.id}", connection=session)
        print(f"order {order.id}: placed, one {item}")
        if item == "unicorn":
            raise OutOfStock
    return order_id


async def work() -> None:
    """What `matrixsched worker sqlalchemy_sync:app` would do with all that is due now."""
    async with app:
        await Worker(app).run_due()


def main() -> None:
    app.sync.init()
    Base.metadata.create_all(engine)
    tea = place("tea")
    try:
        place("unicorn")
    except OutOfStock:
        print("unicorn: out of stock, its order and its action are rolled back")
    with app.sync:
        print(f"confirm:{tea} is {app.sync.get(f'confirm:{tea}').status.state}")
        try:
            app.sync.get(f"confirm:{tea + 1}")
        except ActionNotFound as error:
            print(str(error).partition(".")[0])
    anyio.run(work)
    engine.dispose()


if __name__ == "__main__":
    main()
