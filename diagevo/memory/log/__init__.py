"""The log and the tables beside it in the database. Imports events and tables, never the state."""
