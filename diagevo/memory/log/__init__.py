"""The log and what lies beside it in the database: events and tables come in, never the state."""
