"""The compiled update, and what one run keeps while it trains."""
