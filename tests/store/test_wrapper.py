"""Stores around stores."""

from matrixsched.store.store import Store
from matrixsched.store.wrapper import StoreWrapper


def test_whatever_can_be_asked_of_a_store_can_be_asked_of_one_around_it():
    members = {name for name in vars(Store) if not name.startswith("_")}
    assert {"run", "pool", "watch"} <= members <= vars(StoreWrapper).keys()
