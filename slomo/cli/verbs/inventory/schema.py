"""`slomo schema`: the JSON Schema of documents, for editors and other programs."""

import click

from slomo.cli.options import json_option
from slomo.cli.output import emit, emit_json


@click.command()
@click.argument("name", required=False)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """Print the JSON Schema of a document that slomo reads; without NAME, list the documents.

    An editor that supports JSON Schema completes and checks the document: slomo schema requests > requests.schema.json.
    """
    from slomo.workflow.schemas import DOCUMENTS, document_schema, schema_id

    rows = [(key, row[0], schema_id(key)) for key, row in DOCUMENTS.items()]
    if name is not None:
        emit_json(document_schema(name))
    else:
        headers = ("name", "document", "$id")
        emit([dict(zip(headers, row, strict=True)) for row in rows], headers, rows, as_json=as_json)
