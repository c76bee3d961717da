"""What every test starts from: none of the settings that the shell around them may carry."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("MINICC_") or name in ("DEBUG", "VIZ"):
            monkeypatch.delenv(name)
