"""All tables. SQLModel declares them; a database gets them by migration.

Until the first release there is one migration, written from what is declared here. After a change:

    python -m tests.common.first_migration
"""

import importlib
import pkgutil

from sqlmodel import SQLModel

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

metadata = SQLModel.metadata

__all__ = ["metadata"]
