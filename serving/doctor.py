"""What `podium doctor` says of the programs that serving starts."""

from __future__ import annotations

import subprocess

from registry.doctor import Finding
from registry.settings import Settings
from serving.haproxy import find_haproxy

_ANSWER_SECONDS = 5.0


def haproxy(settings: Settings) -> Finding:
    """Whether HAProxy is there and starts; a deployment of one replica goes without."""
    found = find_haproxy(settings.haproxy)
    if found is None:
        says = f"{settings.haproxy} is no program" if settings.haproxy else "not found"
        remedy = "Install it (Debian: apt install haproxy), or set PODIUM_HAPROXY, for several replicas."
        return Finding("haproxy", False, says, remedy, needed=False)
    try:
        asked = subprocess.run([found, "-v"], capture_output=True, text=True, timeout=_ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        return Finding("haproxy", False, f"{found} does not answer", "Start it by hand.", needed=False)
    version = asked.stdout.partition(" - ")[0].strip()
    if asked.returncode != 0 or not version:
        return Finding("haproxy", False, f"{found} does not start", "Start it by hand.", needed=False)
    return Finding("haproxy", True, f"{found}, {version}")
