"""The A/B harness under the name that its documentation gives it: ``karat ab``, word for word."""

import sys

from karat.cli.main import main

sys.exit(main(["ab", *sys.argv[1:]]))
