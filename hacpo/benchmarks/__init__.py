"""The paper's benchmarks as data: their names, files, sources, and what is in them."""
