"""Training jobs on Kubernetes: how gangs of any kind are seen, stopped whole, restarted and asked to save.

`index.Gangs` is fed by the watches and shows jobs; `stop.stop_job`, `restart.restart_job` and
`checkpoint.checkpoint_job` are verbs; `stop.give_way` is for a drain; `pulse.Pulse` reads progress. What a kind of job
is like is in `kinds`.
"""
