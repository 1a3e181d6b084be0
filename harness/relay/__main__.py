"""`python -m harness.relay`: started by the harness."""

import sys

from harness.instrument import run_instrument
from harness.relay.relay import Relay

if __name__ == "__main__":
    sys.exit(run_instrument(Relay))
