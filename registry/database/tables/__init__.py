"""All tables. SQLModel declares them; migrations are written against this metadata."""

import importlib
import pkgutil

from sqlmodel import SQLModel

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

metadata = SQLModel.metadata

__all__ = ["metadata"]
