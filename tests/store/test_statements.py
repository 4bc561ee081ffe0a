"""The same statement in the spelling of each driver."""

import pytest

from matrixsched.store.statements import load, pyformat

STATEMENTS = load("postgresql", "default")


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_a_statement_for_psycopg_says_the_same_also_where_it_has_percent_signs(name):
    statement = STATEMENTS[name]
    assert pyformat(statement) % {name: f":{name}" for name in statement.parameters} == statement.text


def test_there_is_a_statement_with_a_percent_sign_of_its_own():
    assert any("%" in statement.text for statement in STATEMENTS.values())
