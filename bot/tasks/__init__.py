"""Tasks: what a run works on. A task plans briefs, has them fanned out and makes one document."""
