"""`python -m gitops_reconciler.cli`: the same as `gitops`, for where the script is not on PATH."""

import sys

from gitops_reconciler.cli import main

sys.exit(main())
