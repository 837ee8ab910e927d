"""All that training needs. Nothing here knows a paper, a record or a notebook."""
