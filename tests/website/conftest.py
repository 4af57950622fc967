import sys
from pathlib import Path

# The scripts that build the site are in one folder, not a package.
sys.path.insert(0, str(Path(__file__).parents[2] / "website"))
