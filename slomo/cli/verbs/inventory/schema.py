"""`slomo schema`: the JSON Schema of documents, for editors and other programs."""

import click

from slomo.cli.output import emit_json, emit_table


@click.command()
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """Print the JSON Schema of a document that slomo reads; without NAME list them.

    An editor that speaks JSON Schema completes and checks the document: slomo schema requests > requests.schema.json.
    """
    from slomo.workflow.schemas import DOCUMENTS, document_schema, schema_id

    if name is None:
        emit_table(("name", "document", "$id"), [(key, row[0], schema_id(key)) for key, row in DOCUMENTS.items()])
    else:
        emit_json(document_schema(name))
