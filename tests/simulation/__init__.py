"""The product on a seeded event loop with virtual time: a seed is one run of several workers and clients, with faults.

    loop       asyncio without a world: virtual time, handles picked by the seed, hosts that crash and stop
    faults     which faults a seed has, and the store that commits them
    history    what was asked, claimed, run and recorded, noted outside the database
    database   the state after every commit, and what must hold there
    actors     the handlers, the clients and the workers of a run
    sizes      how large the run of a seed is, and by which numbers its workers live
    world      one run: chaos, heal, drain, check
    nemesis    who strikes, by chance or at a chosen place
    parts      what may be in a run beside actions
    semaphores, semaphore_…, planted_semaphores   such a part, with its own notes, checkers and mistakes
    queues, queue_…, planted_queues   another one
    gates, gate_…, planted_gates   and another: limits, templates and quota
    asked      what clients ask of actions, in their own words
    commit_checkers, lock_checkers, tidy_checkers, end_checkers   what must be true of every run, a function each
    time_checkers, period_checkers, budget_checkers   more of them: that work happens when it should, and not too often
    planting, planted, planted_times   mistakes that the checkers must see
    scenes, scripts, staged_parts   short runs, handlers that do what is written, and as little of each part as needed
    crash_points        scenes, played once for every place at which something can go wrong
    sql_mutants         every small mistake in a statement; hunted in tests/hunting

`./tools/dev simulate --seed 8131` replays a run.
"""
