"""Virtual environments of a cluster's nodes and of its users."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.generators.buckets import AnyPath


@pytest.fixture(params=["folder", "bucket"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> AnyPath:
    """The place of a run directory, of each kind."""
    if request.param == "folder":
        return tmp_path
    bucket: AnyPath = request.getfixturevalue("bucket")
    return bucket


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the nodes have: all packages, but no plait."""
    from ray_cluster import environment

    return environment(tmp_path_factory.mktemp("nodes"))


@pytest.fixture(scope="session")
def cloned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from ray_cluster import clone

    return clone(tmp_path_factory.mktemp("clone") / "plait")


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, cloned: Path) -> Path:
    """The environment of a user who has installed the wheel."""
    from ray_cluster import environment, wheel

    folder = tmp_path_factory.mktemp("installed")
    return environment(folder, wheel(cloned, folder))
