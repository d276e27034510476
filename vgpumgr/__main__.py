"""``python -m vgpumgr``."""

from __future__ import annotations

import sys

from vgpumgr.cli.main import main

sys.exit(main())
