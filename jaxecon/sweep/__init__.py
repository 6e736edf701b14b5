"""Many scenarios: sampled or on a grid, over devices and processes, resumable."""

from ._config import SweepConfig as SweepConfig, read_config as read_config
from ._processes import Processes as Processes, ProcessLost as ProcessLost, join_processes as join_processes
from ._run import Summary as Summary, run_sweep as run_sweep
