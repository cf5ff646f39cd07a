"""The compiled update, and the record that each run keeps while it trains."""
