"""The JSON API: everything a program in any language may want of matrixsched, below `/api/v1`.

Each endpoint is a function and a line in a table (`ENDPOINTS` of each subject's module). Its arguments say what it
takes, what it returns is what it answers with, its docstring is its description: routing, validation and the OpenAPI
document are made of these, so that none of them can say something else.

    routing   a request ──► an endpoint, by the raw path: a slash in an id is %2F, and stays part of its segment
    reading   body, query and headers ──► models; what is wrong with them becomes a problem, and nothing is changed
    openapi   the table ──► the document

Models are of pydantic and live at the edge alone: what lies behind gets our own values. Changes go through
`ops.changes`, which writes them down; what programs schedule, enqueue and put is not noted: it is its own record.
"""
