"""Where the `lockstep` command begins: the one module that is read before Ctrl-C ends it without a traceback."""

from __future__ import annotations

import os


def main() -> None:
    """Entry point. Ends with 2 if the command is refused, 1 if it fails or is stopped while its options are read, and
    128 + the signal's number if it is stopped before or later."""
    try:
        from lockstep.commands.application import app

        app()
    except KeyboardInterrupt:  # while it is imported, above all: a command handles its own
        os.write(2, b"stopped by SIGINT\n")
        os._exit(130)  # what is half imported may fail again at exit


if __name__ == "__main__":
    main()
