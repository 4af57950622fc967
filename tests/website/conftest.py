import sys
from pathlib import Path

# The scripts that build the site stand beside each other; they are no package.
sys.path.insert(0, str(Path(__file__).parents[2] / "website"))
