"""``python -m karat.cli`` is the command line."""

import sys

from karat.cli.main import main

sys.exit(main())
