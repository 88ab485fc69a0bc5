"""Measures of speed, size and economy, against the stand-ins of the tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "tests"))
