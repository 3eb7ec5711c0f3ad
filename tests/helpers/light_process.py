"""Commands in a process that finds no package of an extra, as after `pip install plait`.

python tests/helpers/light_process.py COMMANDS.json

The file holds a list of commands, each a list of words. Prints a list of what each returned
and said, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bare_reader import hide_packages


def main(file: Path) -> None:
    """Do the commands in this folder and print what they did."""
    hide_packages()
    from cli_helpers import plait

    said = []
    for words in json.loads(file.read_text()):
        done = plait(*words, folder=Path.cwd(), PLAIT_EXECUTOR="")
        said.append([done.returncode, done.stdout, done.stderr])
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
