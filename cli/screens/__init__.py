"""What a story looks like: values of `diagevo` become lines and tables. No command is imported."""
