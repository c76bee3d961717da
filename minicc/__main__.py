"""`python -m minicc` is the same as `minicc`."""

import sys

from minicc.tools.commands import main

if __name__ == "__main__":
    sys.exit(main())
