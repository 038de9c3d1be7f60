"""Language models: the embedded agents, policies, learners, and what identifies a model."""
