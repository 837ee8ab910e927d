"""MPI jobs: the launchers `mpiexec` and `engines`, and the commands that start such jobs on any machine."""
