"""The same registry on both pairs of stores."""

from __future__ import annotations

import filecmp
import os
import subprocess
import sys
from pathlib import Path

import pytest

from registry import PodiumError, Registry
from tests.common.content import write_adapter
from tests.common.registries import Place


def test_what_is_published_can_be_promoted_pulled_and_rolled_back(registry: Registry, tmp_path: Path) -> None:
    for seed in (1, 2):
        folder = write_adapter(tmp_path / str(seed), seed=seed)
        registry.catalog.publish("router", folder, "adapter")
        registry.promotions.promote(f"router:v{seed}", "production")
    registry.promotions.rollback("router", "production")
    registry.catalog.pull("router:production", tmp_path / "pulled")
    names = [file.name for file in (tmp_path / "1").iterdir()]
    _, different, missing = filecmp.cmpfiles(tmp_path / "1", tmp_path / "pulled", names, shallow=False)
    assert (different, missing) == ([], [])


def test_another_process_with_the_same_environment_sees_the_same(
    registry: Registry, place: Place, tmp_path: Path
) -> None:
    registry.catalog.publish("router", write_adapter(tmp_path / "a"), "adapter")
    asked = "from registry import connect; print(connect().catalog.resolve('router').digest)"
    environment = os.environ | place.environment
    seen = subprocess.run([sys.executable, "-c", asked], env=environment, capture_output=True, text=True)
    assert seen.stdout.strip() == registry.catalog.resolve("router").digest, seen.stderr


def test_a_refused_promotion_changes_nothing(registry: Registry, tmp_path: Path) -> None:
    registry.catalog.publish("router", write_adapter(tmp_path / "a"), "adapter")
    with pytest.raises(PodiumError):
        registry.promotions.promote("router:v2", "production")
    assert registry.promotions.aliases("router") == []
