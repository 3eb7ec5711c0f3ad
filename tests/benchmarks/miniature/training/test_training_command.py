"""The command that trains a mini model by name."""

import pytest

from benchmarks.miniature.training import __main__ as command


@pytest.mark.parametrize("arguments", [[], ["clop"]])
def test_an_unknown_name_is_refused_with_the_list(arguments: list[str]) -> None:
    """Before any model code is imported."""
    with pytest.raises(SystemExit, match=r"valid: .*clip"):
        command.main(arguments)
