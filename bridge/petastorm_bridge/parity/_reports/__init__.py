"""A result as text, Markdown, JUnit XML and a page."""
