"""Held-out evaluation; the only caller of lm_eval."""
