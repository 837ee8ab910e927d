"""`pyspark.daemon`, which forks Spark's Python workers, with pyspark from its installed files instead of archives.

Spark puts pyspark.zip and a JAR first on PYTHONPATH. Python compiles what it imports from there in every process anew,
and up to version 3.11 reads the directory of each archive again for every task (`importlib.invalidate_caches`), which
takes a tenth of a CPU second. Neither is what is tested. Executors run this as `spark.python.daemon.module`.
"""

from __future__ import annotations

import os
import sys


def _without_archives(paths: list[str]) -> list[str]:
    return [path for path in paths if not path.endswith((".zip", ".jar"))]


if __name__ == "__main__":
    sys.path[:] = _without_archives(sys.path)
    os.environ["PYTHONPATH"] = os.pathsep.join(_without_archives(os.environ["PYTHONPATH"].split(os.pathsep)))
    sys.path_importer_cache.clear()
    from pyspark import daemon

    daemon.manager()
