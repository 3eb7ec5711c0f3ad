"""The command that trains a mini model by name."""

import pytest

from benchmarks.miniature.training import __main__ as command


@pytest.mark.parametrize("arguments", [[], ["clop"]])
def test_an_unknown_name_is_refused_with_the_list(arguments: list[str]) -> None:
    """Before any model code is imported."""
    with pytest.raises(SystemExit, match=r"valid: .*clip"):
        command.main(arguments)


@pytest.mark.models
@pytest.mark.parametrize("name", command.MODELS)
def test_every_name_is_a_command_with_a_help(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No name points at a module that is not there."""
    with pytest.raises(SystemExit) as end:
        command.main([name, "--help"])
    assert end.value.code == 0
    assert "--out" in capsys.readouterr().out
