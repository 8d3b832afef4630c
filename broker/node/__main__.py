"""``python -m broker.node``."""

import sys

from broker.node.main import main

sys.exit(main())
