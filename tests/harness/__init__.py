"""What makes the suite fast, safe to run in two processes, and bounded.

groups         which tests a parallel run keeps apart: MPI with failures, and Spark, are a group each
zygote         workers are forked from a process that has imported torch, except in tests marked `true_start`
spark_cluster  one Spark cluster for a session, except in tests marked `own_cluster`
cpu_table      seconds and CPU seconds by folder, and the budget of `make check` and `make test`

The library knows of none of these: they replace `start_python`, `MpiTeam._commands` and `StandaloneCluster`.
"""
