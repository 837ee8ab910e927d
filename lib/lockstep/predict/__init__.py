"""What a step should take: models of links, costs and pipelines. Never imports torch."""
