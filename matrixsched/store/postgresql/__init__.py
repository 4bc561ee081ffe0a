"""PostgreSQL: one statement per transition, on asyncpg."""
