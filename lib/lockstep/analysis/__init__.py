"""From records to numbers: statistics, tables, verdicts, targets and drawing. Never imports torch."""
