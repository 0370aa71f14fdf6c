"""Files of users beside podium's own names."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.apps.loading import ROOMS, load_file
from registry.errors import InvalidApp


def project(folder: Path, *packages: str) -> Path:
    for package in packages:
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text("")
    (folder / "pyproject.toml").write_text("")
    app = folder / "app_of_a_user.py"
    app.write_text("from registry import App\n\napp = App('support')\n")
    return app


def test_a_folder_with_a_package_named_like_one_of_podiums_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidApp, match="has a module named 'trainers'"):
        load_file(project(tmp_path, "trainers"), root=tmp_path)


def test_a_checkout_of_podium_is_no_such_folder_though_podium_is_installed_elsewhere(tmp_path: Path) -> None:
    assert load_file(project(tmp_path, *ROOMS), root=tmp_path).app == "support"
