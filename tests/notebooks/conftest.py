"""What tests that run notebooks share."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="session", autouse=True)
def _fonts_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """matplotlib keeps a list of fonts by path: one that a removed environment has left made every notebook warn.

    Made before any notebook runs: it may take so long that matplotlib says so, where a notebook should say nothing.
    """
    os.environ["MPLCONFIGDIR"] = str(tmp_path_factory.mktemp("matplotlib"))
    subprocess.run([sys.executable, "-c", "import matplotlib.font_manager"], check=True, capture_output=True)
