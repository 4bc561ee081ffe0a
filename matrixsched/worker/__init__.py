"""The daemon: carries actions from the incoming queue through the processing queue to their handlers.

What keeps it right is two leases and one habit.

**The shard lock** is held for milliseconds, by one sync iteration with a fresh guid, while rows are moved and claimed.
Move and claim carry a locking read of that guid in the same statement (the fence): a worker that was stopped, slept or
lost its connection, and whose lock was taken meanwhile, writes nothing.

**The attempt lease** is the claimed row itself. Claiming sets the row's time to the end of the lease, so a worker that
dies needs nobody to clean up: the row simply comes due again, still bearing the name of the attempt (attempt number and
sync guid), and is then known to be *interrupted*, not failed. While the handler runs, the lease is prolonged by a
thread with a loop and a connection of its own, which a handler that blocks the event loop does not stop. Whoever writes
about an attempt — prolongs, records, gives back — names it exactly; if the row says otherwise, nothing is written.

**The habit**: time is trusted only as far as it was asked for *before* the statement was sent. A claim is started only
while `asked + lease - margin` lies ahead on the monotonic clock; past that the handler is cancelled and its outcome
refused by the row.

    intake     acquire a shard with work → claim what is due, move what is new, pass gates → release; in a crowd two of
               these go on side by side. A worker at rest that is told in which shard something is new takes it by
               the move itself; one that looks in vain again and again leaves it to others (restraint.py)
    runner     slots; start what passed a gate in its time, decode, call the handler under its limit, judge what follows
    recorder   outcomes in batches: recorded, superseded, lost, or busy (sent again)
    leases     prolong what is under way; give back what could not be started soon
    balancing  one worker at a time: give the places of semaphores about which something changed
    sampling   how much is due, what is held, how late the event loop is; only while somebody listens
    processors batches of queues: taken, read, handled, settled; prolonged beside the leases (batches.py)
    tidying    one worker at a time: prune what is old, expire what nobody ran, sweep what no action stands behind

**Gates** come before the claim. What has to pass one waits in a lane of its own, due and unattempted, and is claimed in
the transaction that takes its slots and its share (store/gating.py). A slot has a time, by the database's clock, which
is told here from the answers it gave (database_time.py); an attempt that cannot start in its slot is given back.

**Batches** of queues are held the same way: a receipt that ends by itself, prolonged while the handler runs, and named
by whoever settles the tasks. What became of each is kept in a ledger (queues/ledger.py), for the handler, the processor
and the thread that prolongs all have a say in it; a task that is known to be lost is not settled, nor counted.

Each step returns how long it may rest. Shutdown goes the other way round: no new claims; handlers get a grace; the
rest are cancelled and their rows made due at once (a thread cannot be cancelled: its row is left to its lease); the
last outcomes are recorded; leases are prolonged to the end.

What is not promised: exactly-once side effects; order between actions; that a change stops an attempt already begun.
"""

from __future__ import annotations

from matrixsched.worker.daemon import Worker
from matrixsched.worker.policy import WorkerPolicy

__all__ = ["Worker", "WorkerPolicy"]
