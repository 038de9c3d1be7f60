"""The paper's benchmarks as data: what they are, their files, where they come from, what is in them."""
