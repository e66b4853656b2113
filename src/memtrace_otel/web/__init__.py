"""Pages to look and to review: failing answers, memories, people's verdicts. Server-rendered, Starlette and Jinja2."""
