"""Thin Prefect flows around the library; nothing in `hacpo` imports this."""
