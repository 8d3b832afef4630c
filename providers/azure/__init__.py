"""Azure: the retail price list, and what a subscription adds to it. Prices only; nothing is rented there."""
