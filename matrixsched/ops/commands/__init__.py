"""The commands, by subject. Each module registers its own; what they do is in the modules above this folder.

toolkit     what all share: settings as options, confirmation, progress
installing  init, upgrade, check, settings
working     worker, demo
scheduling  schedule
acting      actions list | show | cancel | run-now | redrive | next
repeating   the options that make a rule of repetition, for schedule and for actions next
sharding    shards list | release
limiting    limits list | show | set | remove | slow-down | resume
semaphoring semaphores list | show | set | release
pruning     prune
"""
