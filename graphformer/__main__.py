"""``python -m graphformer`` is the command ``graphformer``."""

import sys

from .cli import main

sys.exit(main())
