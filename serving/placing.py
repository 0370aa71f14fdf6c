"""What podium lays beside a vLLM process for it to import: the middleware and the plugin."""

from __future__ import annotations

import shutil
from pathlib import Path

from serving import idling, middleware

__all__ = ["MIDDLEWARE", "place_code"]

MIDDLEWARE = "podium_middleware"
_PLUGIN = "podium_idling"
_ENTRY_POINTS = f"[vllm.general_plugins]\n{_PLUGIN} = {_PLUGIN}:{idling.sleep_between_looks.__name__}\n"
_METADATA = f"Metadata-Version: 2.1\nName: {_PLUGIN}\nVersion: 0\n"


def place_code(folder: Path) -> Path:
    """Fill ``folder/python``, which holds nothing else, and return it.

    Copies, because vLLM imports them by name whatever its environment is, and because podium may be upgraded
    under a running replica whose children import them again.
    """
    code = folder / "python"
    shutil.rmtree(code, ignore_errors=True)
    package = code / MIDDLEWARE
    package.mkdir(parents=True)
    for file in Path(middleware.__file__).parent.glob("*.py"):
        shutil.copyfile(file, package / file.name)
    shutil.copyfile(idling.__file__, code / f"{_PLUGIN}.py")
    described = code / f"{_PLUGIN}-0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(_METADATA)
    (described / "entry_points.txt").write_text(_ENTRY_POINTS)
    return code
