"""`python -m tests.soak`, from the root of the repository: what the tests share is found as pytest finds it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

if __name__ == "__main__":
    from soak.running import main

    sys.exit(main())
