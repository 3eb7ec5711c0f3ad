"""The example of `cluster/README.md` works as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from cluster.run_log import RunLog
from cluster.watcher import WorkerFailure

README = Path(__file__).resolve().parents[1] / "cluster" / "README.md"


def test_the_watcher_of_the_readme_counts_lost_workers(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    watcher = names["Losses"]()
    with RunLog(tmp_path, watcher) as log:
        for stage in ("writer", "writer", "painter"):
            log.worker_failed(WorkerFailure("", stage, "host", "died", "killed", 1))
    assert watcher.by_stage == {"writer": 2, "painter": 1}
