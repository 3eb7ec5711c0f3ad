"""`python -m benchmarks.speed`: the same as `plait bench stage`, needing no Ray."""

import sys

from benchmarks.speed.main import main

sys.exit(main())
