"""Write values as the YAML documents that people edit."""

from collections.abc import Mapping
from typing import Any

import yaml


def to_yaml(table: Mapping[str, Any], comment: str) -> str:
    """Return a document's fields as YAML that loads again, without default fields."""
    fields = {
        name: value for name, value in table.items() if value not in (None, "", [], {}) and name != "schema_version"
    }
    return f"# {comment}\n" + yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=110)
