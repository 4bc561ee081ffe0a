"""The product on a seeded event loop with virtual time: a seed is one run of several workers and clients, with faults.

    loop       asyncio without a world: virtual time, handles picked by the seed, hosts that crash and stop
    faults     which faults a seed has, and the store that commits them
    history    what was asked, claimed, run and recorded, noted outside the database
    database   the state after every commit, and what must hold there
    actors     the handlers, the clients and the workers of a run
    world      one run: chaos, heal, drain, check
    checkers   what must be true of every run, a function each
    planted    mistakes that the checkers must see

`./tools/dev simulate --seed 8131` replays a run.
"""
