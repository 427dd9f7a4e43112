"""The naive reader and the generators of this folder can be imported."""

import sys
from pathlib import Path

# Tests are no package; the helpers of this folder are found by its path.
sys.path.insert(0, str(Path(__file__).parent))
